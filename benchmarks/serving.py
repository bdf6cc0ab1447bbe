"""Tokens a second of the server: one client, many at once, and transformers' generate() on the same model, exported.

    .venv/bin/python benchmarks/serving.py            # 26 M parameters, 64 answers of 32 tokens, about 3 minutes
    .venv/bin/python benchmarks/serving.py --smoke    # a tiny model, 8 answers: does it run?

All on the CPU in float32, greedy, one after the other: launch/serve.py over REST with one client that asks in turn,
then with as many clients as there are prompts; then the directory that launch/export.py makes of the same model in
transformers, one prompt after the other, and in padded batches of the server's size. Prompts have 4 to 40 ids. The
answers are compared. Needs torch and transformers (requirements/compare.txt).
"""

import argparse
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

from rich.console import Console
from rich.table import Table

from launch.weights.exporting import export_directory
from tests.ranks import RankServer
from tests.serving.servers import start_serve

SIZES = {"vocab_size": 8000, "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8}
SMOKE = {"vocab_size": 384, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
ALL = {"num_attention_heads": 8, "num_key_value_heads": 8, "initializer_range": 0.1}
TOKENS, BATCH = 32, 16
WORKER = "benchmarks.serving_worker"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--smoke", action="store_true", help="a tiny model")
    smoke = parser.parse_args(argv).smoke
    sizes = (SMOKE if smoke else SIZES) | ALL
    prompts = _prompts(8 if smoke else 64, sizes["vocab_size"])
    ranks = RankServer()
    with tempfile.TemporaryDirectory() as directory:
        ranks(1, f"{WORKER}:make_material", directory, sizes)
        export_directory(Path(directory, "model"), Path(directory, "exported"), None, 10**9)
        found = _served(Path(directory, "model"), prompts)
        for name, (ids, seconds) in _transformers(Path(directory, "exported"), prompts).items():
            found[name] = (ranks(1, f"{WORKER}:texts", directory, ids)[0], seconds)
    ranks.close()
    _show(found)
    return 0 if len({tuple(texts) for texts, _ in found.values()}) == 1 else 1


def _prompts(count: int, vocabulary: int) -> list[list[int]]:
    draw = random.Random(0)
    return [[draw.randrange(3, vocabulary) for _ in range(draw.randint(4, 40))] for _ in range(count)]


def _served(model: Path, prompts: list[list[int]]) -> dict[str, tuple[list[str], float]]:
    server = start_serve("--model_name_or_path", model, "--batch_size", BATCH, "--device", "cpu")
    client = server.client()

    def ask(prompt: list[int]) -> str:
        reply = client.completions.create(model="model", prompt=prompt, max_tokens=TOKENS, temperature=0)
        return reply.choices[0].text

    ask(prompts[0])  # warm
    found = {"server, one client": _timed(lambda: [ask(prompt) for prompt in prompts])}
    with ThreadPoolExecutor(len(prompts)) as pool:
        found[f"server, {len(prompts)} clients"] = _timed(lambda: list(pool.map(ask, prompts)))
    server.stop()
    return found


def _transformers(exported: Path, prompts: list[list[int]]) -> dict[str, tuple[list[list[int]], float]]:
    """Ids, not texts."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(exported, torch_dtype=torch.float32).eval()

    def answer(batch: list[list[int]]) -> list[list[int]]:
        longest = max(map(len, batch))
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in batch])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in batch])
        with torch.no_grad():
            out = model.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0
            )
        return out[:, longest:].tolist()

    def in_batches(size: int) -> list[list[int]]:
        batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
        return [ids for batch in batches for ids in answer(batch)]

    answer(prompts[:1])  # warm
    return {
        "transformers, one by one": _timed(lambda: in_batches(1)),
        f"transformers, batches of {BATCH}": _timed(lambda: in_batches(BATCH)),
    }


def _timed(work) -> tuple[list, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def _show(found: dict[str, tuple[list[str], float]]) -> None:
    texts, alone = next(iter(found.values()))
    _, peer = list(found.values())[-1]
    table = Table(title=f"{len(texts)} answers of {TOKENS} tokens")
    for heading in ("", "tokens/s", "of one client", "of transformers in batches", "same texts"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, (said, seconds) in found.items():
        same = sum(one == other for one, other in zip(said, texts, strict=True))
        speed = f"{len(texts) * TOKENS / seconds:,.0f}"
        table.add_row(name, speed, f"{alone / seconds:.2f}", f"{peer / seconds:.2f}", f"{same} of {len(texts)}")
    Console(width=110).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
