"""Training samples of fixed length, cut from the documents of one split of a corpus."""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tool_helpers import helpers

from data_tools.formats.atomic import one_at_a_time, written_aside
from data_tools.formats.errors import DataError
from data_tools.formats.tokens.indexed import IndexedDataset

# Part of the cache key: to be raised when the same key would have to give another index.
INDEX_VERSION = 1
DIGEST_BYTES = 32
ANNOUNCED_DOCUMENTS = 5_000_000


def split_boundaries(split: str, documents: int) -> list[int]:
    """Return [0, end of train, end of valid, documents] for shares such as "949,50,1" (or "949/50/1", or "1").

    The same boundaries as get_train_valid_test_split_ of paddlenlp and Megatron-LM, rounding included, so
    that a corpus is split as by these; only where theirs become negative (tiny corpora), 0 stands.
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


@dataclass(frozen=True)
class Split:
    """The documents [first, last) of a corpus; `name` is train, valid or test."""

    corpus: IndexedDataset
    name: str
    first: int
    last: int

    @property
    def sizes(self) -> np.ndarray:
        """Tokens of each document of the split."""
        return self.corpus.sizes[self.first : self.last]

    def count_samples(self, sequence_length: int) -> int:
        """Return the number of samples.

        Neighbours share a token, the last label of the first: only the first sample takes one more.
        """
        return max(0, int(self.sizes.sum(dtype=np.int64)) - 1) // sequence_length

    def identity(self, sequence_length: int, seed: int) -> dict:
        """Return what the samples of one pass and their numbers depend on."""
        return {
            "corpus": self.corpus.content_key(),
            "documents": [self.first, self.last],
            "sequence_length": sequence_length,
            "shuffle_seed": seed,
        }


class SampleIndex:
    """The start of each sample of a split, for one pass over its documents, shuffled once by `seed`.

    order   int32[documents], the shuffled document numbers
    starts  int32[samples + 1, 2], (position in `order`, offset in that document)

    Kept in `cache_dir` under a key of everything it depends on, the corpus by content, and behind a SHA-256
    of itself: a stale file is never found, a damaged one is built again. Of processes that want it at once one
    builds it, the others wait (on other machines they build it, too: the last of equal files stays).

    Building takes time and memory in proportion to documents and samples, under 1 s and 50 MB a million documents.
    """

    def __init__(self, split: Split, sequence_length: int, seed: int, cache_dir: str | Path):
        first, last = split.first, split.last
        documents = last - first
        samples = split.count_samples(sequence_length)
        key = json.dumps([INDEX_VERSION, split.corpus.content_key(), first, last, sequence_length, seed])
        path = Path(cache_dir) / f"samples-{hashlib.sha256(key.encode()).hexdigest()[:32]}.index"
        size = DIGEST_BYTES + 4 * (documents + 2 * (samples + 1))
        if not _is_whole(path, size):
            with one_at_a_time(cache_dir):
                if not _is_whole(path, size):  # nobody has built it meanwhile
                    _build(path, split, sequence_length, seed)
        stored = np.asarray(np.memmap(path, dtype=np.int32, mode="r", offset=DIGEST_BYTES))
        self.order = stored[:documents]
        self.starts = stored[documents:].reshape(samples + 1, 2)


def _build(path: Path, split: Split, sequence_length: int, seed: int) -> None:
    say = _progress(split)
    say("shuffling the documents")
    # RandomState: NumPy promises the same stream in all versions, for default_rng it does not.
    order = np.random.RandomState(seed).permutation(np.arange(split.first, split.last, dtype=np.int32))
    say("cutting them into samples")
    starts = build_sample_index(split.corpus.sizes[order], sequence_length)
    say("writing")
    content = order.tobytes() + starts.tobytes()
    with written_aside(path) as file:
        file.write(hashlib.sha256(content).digest() + content)


def _progress(split: Split) -> Callable[[str], None]:
    """Return a step that prints a line on stderr where building takes more than some seconds."""
    documents = split.last - split.first
    if documents < ANNOUNCED_DOCUMENTS:
        return lambda step: None
    name = f"sample index of {split.corpus.prefix}, {split.name}, {documents:,} documents"
    return lambda step: print(f"{name}: {step}", file=sys.stderr, flush=True)


def _is_whole(path: Path, expected_bytes: int) -> bool:
    if not path.is_file() or path.stat().st_size != expected_bytes:
        return False
    stored = np.memmap(path, dtype=np.uint8, mode="r")
    return hashlib.sha256(stored[DIGEST_BYTES:].data).digest() == stored[:DIGEST_BYTES].tobytes()


class Sample:
    """A sample as views of the token file: `pieces` of one document each, together sequence_length + 1 tokens.

    sample["input_ids"], sample["labels"]: int64[sequence_length], labels one token ahead. `write` copies into a batch.
    """

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[np.ndarray]):
        self.pieces = pieces

    def __getitem__(self, key: str) -> np.ndarray:
        tokens = np.concatenate(self.pieces, dtype=np.int64)
        return {"input_ids": tokens[:-1], "labels": tokens[1:]}[key]

    def write(self, input_ids: np.ndarray, labels: np.ndarray) -> None:
        """Fill two rows of a batch, int64[sequence_length]: the only time that the tokens are copied."""
        start = 0
        for piece in self.pieces:
            input_ids[start : start + piece.size] = piece[: input_ids.size - start]
            labels[max(start - 1, 0) : start + piece.size - 1] = piece[start == 0 :]
            start += piece.size


class SampleDataset:
    """Samples cut from the concatenation of the documents of one split.

    `dataset[i]` is a Sample, with {"input_ids", "labels"}, labels one token ahead. Over one pass every token of the
    split is a label once, except the very first and the remainder behind the last whole sample. The order of samples,
    and epochs, are the sampler's business.

    Raises DataError when the documents do not fill one sample.
    """

    def __init__(self, split: Split, sequence_length: int, seed: int, cache_dir: str | Path):
        if not split.count_samples(sequence_length):
            raise DataError(
                f"{split.corpus.prefix}: the {split.name} split has {split.sizes.size} of "
                f"{len(split.corpus)} documents with {split.sizes.sum()} tokens, one sample needs "
                f"{sequence_length + 1}. Give {split.name} a larger share in split, use more text, or a "
                "shorter max_seq_length."
            )
        self.corpus = split.corpus
        self._identity = split.identity(sequence_length, seed)
        self.index = SampleIndex(split, sequence_length, seed, cache_dir)

    def __len__(self) -> int:
        return len(self.index.starts) - 1

    def identity(self) -> dict:
        """Return what the samples and their numbers depend on."""
        return self._identity | {"samples": len(self)}

    def __getitem__(self, i: int) -> Sample:
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of {len(self)}")
        (first, first_offset), (last, last_offset) = self.index.starts[i : i + 2].tolist()
        pieces = [self.corpus[document] for document in self.index.order[first : last + 1]]
        pieces[-1] = pieces[-1][: last_offset + 1]
        pieces[0] = pieces[0][first_offset:]
        return Sample([piece for piece in pieces if piece.size])


def build_sample_index(sizes: np.ndarray, sequence_length: int) -> np.ndarray:
    """Cut documents, in the order given, into samples of `sequence_length` tokens and one for the last label.

    By the index builder of tool_helpers, Megatron-LM's C++ loop.

    sizes: int32[documents], tokens of each. Returns int32[samples + 1, 2]: row k is (document, offset of its
    token) where sample k begins; the last token of sample k is the first of sample k + 1, so each label
    counts once. samples = (tokens - 1) // sequence_length; the few tokens behind the last whole sample are
    left out.
    """
    order = np.arange(sizes.size, dtype=np.int32)
    epochs = 1
    with _stdout_silenced():
        return helpers.build_sample_idx(sizes, order, sequence_length, epochs, int(sizes.sum(dtype=np.int64)))


@contextmanager
def _stdout_silenced() -> Iterator[None]:
    """Redirect stdout to nowhere: build_sample_idx prints five lines from C++ at every call."""
    sys.stdout.flush()
    stdout = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(nowhere)
