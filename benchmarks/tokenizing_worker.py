"""One row of benchmarks/tokenizing.py, in a process of its own: prints {"seconds", "cpu_seconds", "sha256"} as JSON.

Time runs from where the tokenizer is loaded to where the ids are on disk (of the bare library: in memory). The loops of
Megatron-LM (tools/preprocess_data.py) and PaddleNLP (llm/tools/preprocess/create_pretraining_data.py) are written by us
after what these programs do to a line, step by step; nothing that costs time is left out.
"""

import hashlib
import json
import multiprocessing
import os
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np

from data_tools.formats.tokens.indexed import token_dtype, write_index
from data_tools.text.blocks import BLOCK_BYTES
from data_tools.text.encoders import load_encoder

FORK = multiprocessing.get_context("fork")


class Clock:
    """Wall and CPU seconds of this process and of the children that it has waited for."""

    def __init__(self):
        self.wall, self.cpu = time.perf_counter(), self._cpu()

    def _cpu(self) -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    def seconds(self) -> dict:
        """Return the wall and CPU seconds since the start."""
        return {"seconds": time.perf_counter() - self.wall, "cpu_seconds": self._cpu() - self.cpu}


def bare(job: dict) -> dict:
    """Encode with the library alone: texts are in memory, each process encodes its part in batches.

    Ids stay in memory, too.
    """
    encode, eos = native_encoder(job["tokenizer"])
    with open(job["input"], encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    parts = [texts[number :: job["workers"]] for number in range(job["workers"])]
    results = [FORK.SimpleQueue() for _ in parts]

    def work(part: list[str], queue) -> None:
        batches = list(native_batches(part))
        clock = Clock()
        ids = [encode(batch) for batch in batches]
        queue.put(clock.seconds())
        queue.put([np.array([*text, eos], dtype=token_dtype(1)).tobytes() for batch in ids for text in batch])

    processes = [FORK.Process(target=work, args=arguments) for arguments in zip(parts, results, strict=True)]
    for process in processes:
        process.start()
    times = [queue.get() for queue in results]
    encoded = [queue.get() for queue in results]
    in_order = (encoded[i % len(parts)][i // len(parts)] for i in range(len(texts)))
    return {
        "seconds": max(time["seconds"] for time in times),
        "cpu_seconds": sum(time["cpu_seconds"] for time in times),
        "sha256": hashlib.sha256(b"".join(in_order)).hexdigest(),
    }


def native_encoder(directory: str):
    """Return (the library's fastest call for a batch of texts, eos id)."""
    encoder = load_encoder(directory)
    if hasattr(encoder, "_model"):
        return lambda texts: encoder._model.encode(texts, out_type="numpy", num_threads=1), encoder.eos_id
    encode_batch = encoder._tokenizer.encode_batch_fast
    return lambda texts: [encoding.ids for encoding in encode_batch(texts, add_special_tokens=False)], encoder.eos_id


def native_batches(texts: list[str]):
    """Yield texts in batches."""
    batch, size = [], 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= BLOCK_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def ours(job: dict) -> dict:
    """Tokenize with ours."""
    from data_tools.tokenize import tokenize_files

    clock = Clock()
    tokenize_files([job["input"]], job["tokenizer"], job["output"], workers=job["workers"])
    return clock.seconds() | {"sha256": file_hash(job["output"])}


class MegatronLoop:
    """`encode` runs in a pool; every document comes back as a list of Python integers and is written alone."""

    def __init__(self, job: dict):
        self.job = job

    def initialize(self) -> None:
        """Load the tokenizer in a worker."""
        encoder = load_encoder(self.job["tokenizer"])
        MegatronLoop.eod = encoder.eos_id
        if hasattr(encoder, "_model"):
            MegatronLoop.tokenize = staticmethod(encoder._model.encode_as_ids)
        else:  # as its HuggingFaceTokenizer: one text a call
            tokenizer = encoder._tokenizer
            MegatronLoop.tokenize = staticmethod(lambda text: tokenizer.encode(text, add_special_tokens=False).ids)

    def encode(self, line: str) -> tuple[dict, dict, int]:
        """Encode a line as Megatron-LM does."""
        text = json.loads(line)["text"]
        ids, lengths = [], []
        for sentence in [text]:
            sentence_ids = MegatronLoop.tokenize(sentence)
            if len(sentence_ids) > 0:
                ids.extend(sentence_ids)
                lengths.append(len(sentence_ids))
        if len(ids) > 0:
            ids.append(MegatronLoop.eod)
            lengths[-1] += 1
        return {"text": ids}, {"text": lengths}, len(line)


def megatron(job: dict) -> dict:
    """Tokenize with Megatron-LM's loop."""
    loop = MegatronLoop(job)
    dtype = token_dtype(load_encoder(job["tokenizer"]).vocab_size)
    clock = Clock()
    sizes, processed = [], 0
    with open(job["input"], encoding="utf-8") as lines, open(f"{job['output']}.bin", "wb") as file:
        pool = FORK.Pool(job["workers"], initializer=loop.initialize)
        for ids, lengths, size in pool.imap(loop.encode, lines, 32):
            processed += size
            for key in ids:
                file.write(np.array(ids[key], dtype=dtype).tobytes(order="C"))
                sizes.extend(lengths[key])
        pool.close()
        pool.join()
    with open(f"{job['output']}.idx", "wb") as index:
        write_index(index, np.array(sizes, dtype=np.int32), dtype)
    return clock.seconds() | {"sha256": file_hash(job["output"])}


class PaddleNLPLoop:
    """`encode` runs in a pool: repeated characters are searched, paddlenlp's tokenizer gives pieces, then ids."""

    def __init__(self, job: dict):
        self.job = job

    def initialize(self) -> None:
        """Load the tokenizer in a worker."""
        from paddlenlp.transformers import AutoTokenizer

        PaddleNLPLoop.tokenizer = AutoTokenizer.from_pretrained(self.job["tokenizer"])

    def encode(self, line: str) -> tuple[list[list[int]], int]:
        """Encode a line as PaddleNLP does."""
        text = re.sub(r"(.)\1{100,}", r"\1", json.loads(line)["text"])
        document = []
        for sentence in (text,):
            pieces = PaddleNLPLoop.tokenizer.tokenize(sentence.strip())
            ids = PaddleNLPLoop.tokenizer.convert_tokens_to_ids(pieces)
            if len(ids) > 0:
                document.append(ids)
        document[-1].append(PaddleNLPLoop.tokenizer.eos_token_id)
        return document, len(text.encode("utf-8"))


def paddlenlp(job: dict) -> dict:
    """Tokenize with paddlenlp's own tokenizer and index builder."""
    from paddlenlp.data.indexed_dataset import make_builder

    loop = PaddleNLPLoop(job)
    loop.initialize()
    dtype = token_dtype(load_encoder(job["tokenizer"]).vocab_size)
    clock = Clock()
    builder = make_builder(f"{job['output']}.bin", "mmap", dtype.type)
    processed = 0
    with open(job["input"], encoding="utf-8") as lines:
        pool = FORK.Pool(job["workers"], initializer=loop.initialize)
        for document, size in pool.imap(loop.encode, lines, 256):
            processed += size
            for sentence in document:
                builder.add_item(sentence)
            builder.end_document()
        pool.close()
        pool.join()
    builder.finalize(f"{job['output']}.idx")
    return clock.seconds() | {"sha256": file_hash(job["output"])}


def file_hash(prefix: str) -> str:
    """Return the SHA-256 of a corpus' .bin."""
    return hashlib.sha256(Path(f"{prefix}.bin").read_bytes()).hexdigest()


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    row = {"bare": bare, "ours": ours, "megatron": megatron, "paddlenlp": paddlenlp}[request["row"]]
    print(json.dumps(row(request)))
