"""Texts that came before: the same, or nearly (MinHash and its index, from datasketch).

Near means that the sets of word 5-grams, a Chinese character counting as a word, have at least a given Jaccard
similarity (the size of the intersection over that of the union). It is estimated from 128 minima, to about 0.04; the
index finds candidates, and misses few at the threshold and hardly any above it.
"""

import hashlib
import re

import numpy as np
import xxhash
from datasketch import MinHash, MinHashLSH

WORD = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|[^\W\u3400-\u9fff\uf900-\ufaff]+")
SHINGLE_WORDS = 5
MINIMA = 128
SCHEME = "affine32"  # 32-bit minima
MISSED_COUNTS = 0.9  # weight of a miss; 0.1 for a needless candidate, which costs one comparison


def text_digest(text: str) -> bytes:
    """Return 16 bytes that name a text; surrounding space does not count."""
    return hashlib.blake2b(text.strip().encode(), digest_size=16).digest()


def signature(text: str) -> np.ndarray:
    """Return uint32[128], the MinHash of a text."""
    minhash = MinHash(num_perm=MINIMA, hashfunc=xxhash.xxh32_intdigest, scheme=SCHEME)
    minhash.update_batch(shingles(text))
    return minhash.hashvalues


def shingles(text: str) -> list[bytes]:
    """Return the different word 5-grams; of a shorter text all its words; the text itself where it has none."""
    words = WORD.findall(text.lower()) or [text]
    starts = range(max(1, len(words) - SHINGLE_WORDS + 1))
    return list({" ".join(words[start : start + SHINGLE_WORDS]).encode() for start in starts})


class ExactDuplicates:
    """The texts seen. Memory: about 200 bytes a text."""

    def __init__(self):
        self._seen: dict[bytes, str] = {}

    def find(self, digest: bytes, where: str) -> str | None:
        """Return where the same text came first; None, and the text is recorded, when it is new."""
        first = self._seen.setdefault(digest, where)
        return None if first is where else first


class NearDuplicates:
    """The signatures of the texts kept. Memory: about 6 KB a text."""

    def __init__(self, threshold: float):
        self.threshold = threshold
        self._index = MinHashLSH(threshold, MINIMA, weights=(1 - MISSED_COUNTS, MISSED_COUNTS))
        self._kept: list[tuple[np.ndarray, str]] = []

    def find(self, minima: np.ndarray, where: str) -> str | None:
        """Return where a text this near was kept first; None, and this one is kept, when there is none."""
        minhash = MinHash(hashvalues=minima, scheme=SCHEME)
        near: list[int] = self._index.query(minhash)  # pyright: ignore[reportAssignmentType] (keys as inserted below)
        for number in sorted(near):
            kept, first = self._kept[number]
            if np.mean(kept == minima) >= self.threshold:
                return first
        self._index.insert(len(self._kept), minhash)
        self._kept.append((minima, where))
        return None
