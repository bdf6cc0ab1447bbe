"""Training samples of fixed length, cut from the documents of one split of a corpus."""

import hashlib
import json
from pathlib import Path

import numpy as np

from data_tools.formats.atomic import written_aside
from data_tools.formats.errors import DataError
from data_tools.formats.indexed import IndexedDataset
from data_tools.formats.native import build_sample_index

# Part of the cache key: to be raised when the same key would have to give another index.
INDEX_VERSION = 1
DIGEST_BYTES = 32


def split_boundaries(split: str, documents: int) -> list[int]:
    """[0, end of train, end of valid, documents] for shares such as "949,50,1" (or "949/50/1", or "1").

    The same boundaries as get_train_valid_test_split_ of paddlenlp and Megatron-LM, rounding included, so that a
    corpus is divided as it always was; only where theirs become negative (tiny corpora), 0 stands.
    """
    try:
        shares = [float(share) for share in split.replace("/", ",").split(",")]
    except ValueError:
        shares = []
    if not 1 <= len(shares) <= 3 or min(shares) < 0 or not 0 < sum(shares) < float("inf"):
        raise DataError(f"split {split!r}: expected one to three shares for train, valid, test, such as 949,50,1.")
    shares += [0.0] * (3 - len(shares))
    boundaries = [0]
    for share in shares:
        boundaries.append(boundaries[-1] + round(share / sum(shares) * documents))
    excess = boundaries[-1] - documents
    return [0] + [max(0, boundary - excess) for boundary in boundaries[1:]]


def count_samples(corpus: IndexedDataset, first: int, last: int, sequence_length: int) -> int:
    """How many samples the documents [first, last) give; a sample has one token more, the last label."""
    tokens = int(corpus.sizes[first:last].sum(dtype=np.int64))
    return max(0, tokens - 1) // sequence_length


class SampleIndex:
    """Where each sample of documents [first, last) begins, for one pass over them in an order shuffled once by `seed`.

    order   int32[documents], the shuffled document numbers
    starts  int32[samples + 1, 2], (position in `order`, offset in that document)

    Kept in `cache_dir` under a key of everything it depends on, the corpus by content, behind a SHA-256 of itself: a
    stale file is never found, a damaged one is built again. Processes may build the same index at once.
    """

    def __init__(self, corpus: IndexedDataset, first: int, last: int, sequence_length: int, seed: int, cache_dir: str | Path):
        self.documents = last - first
        self.samples = count_samples(corpus, first, last, sequence_length)
        key = json.dumps([INDEX_VERSION, corpus.content_key(), first, last, sequence_length, seed])
        path = Path(cache_dir) / f"samples-{hashlib.sha256(key.encode()).hexdigest()[:32]}.index"
        if not self._is_whole(path):
            # RandomState: NumPy promises the same stream in all versions, for default_rng it does not.
            order = np.random.RandomState(seed).permutation(np.arange(first, last, dtype=np.int32))
            starts = build_sample_index(corpus.sizes[order], sequence_length)
            content = order.tobytes() + starts.tobytes()
            with written_aside(path) as file:
                file.write(hashlib.sha256(content).digest() + content)
        stored = np.asarray(np.memmap(path, dtype=np.int32, mode="r", offset=DIGEST_BYTES))
        self.order = stored[: self.documents]
        self.starts = stored[self.documents :].reshape(-1, 2)

    def _is_whole(self, path: Path) -> bool:
        expected = DIGEST_BYTES + 4 * (self.documents + 2 * (self.samples + 1))
        if not path.is_file() or path.stat().st_size != expected:
            return False
        stored = np.memmap(path, dtype=np.uint8, mode="r")
        return hashlib.sha256(stored[DIGEST_BYTES:]).digest() == stored[:DIGEST_BYTES].tobytes()


class SampleDataset:
    """Samples cut from the concatenation of the documents [first, last) of a corpus.

    `dataset[i]` is {"input_ids", "labels"}, int64[sequence_length] each, labels one token ahead. Over one pass every
    token of the split is a label once, except the very first and the remainder behind the last whole sample. The
    order of samples, and epochs, are the sampler's business.

    Raises DataError when the documents do not fill one sample; `name` (train, valid, test) is for that message.
    """

    def __init__(self, corpus: IndexedDataset, first: int, last: int, name: str, sequence_length: int, seed: int,
                 cache_dir: str | Path):
        if not count_samples(corpus, first, last, sequence_length):
            raise DataError(
                f"{corpus.prefix}: the {name} split has {last - first} of {len(corpus)} documents with "
                f"{corpus.sizes[first:last].sum()} tokens; one sample needs {sequence_length + 1}. Give {name} a larger share in split, use more text, or a shorter "
                "max_seq_length."
            )
        self.corpus = corpus
        self.sequence_length = sequence_length
        self.index = SampleIndex(corpus, first, last, sequence_length, seed, cache_dir)

    def __len__(self) -> int:
        return self.index.samples

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of {len(self)}")
        (first, first_offset), (last, last_offset) = self.index.starts[i : i + 2].tolist()
        documents = [self.corpus[document] for document in self.index.order[first : last + 1]]
        documents[-1] = documents[-1][: last_offset + 1]
        documents[0] = documents[0][first_offset:]
        tokens = np.concatenate(documents, dtype=np.int64)
        return {"input_ids": tokens[:-1], "labels": tokens[1:]}
