r"""Token files `PREFIX.bin` and `PREFIX.idx` as Megatron-LM and PaddleNLP (MMapIndexedDataset) have them.

    PREFIX.bin   the token ids of all documents, one after another, little endian, nothing else
    PREFIX.idx   9 bytes   magic "MMIDIDX\0\0"
                 uint64    version 1
                 uint8     dtype code of the ids (4 int32, 8 uint16, ...)
                 uint64    n, the number of sequences
                 uint64    d, the number of document boundaries
                 int32[n]  tokens of each sequence
                 int64[n]  where each sequence starts in the .bin, in bytes
                 int64[d]  first sequence of each document, and n

We write one sequence a document, as all GPT-style corpora do. Where a file has more, a sequence is the unit
that training shuffles and splits: Megatron-LM and PaddleNLP do the same.
"""

import hashlib
import struct
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import ArrayLike

from data_tools.formats.atomic import written_aside
from data_tools.formats.errors import DataError

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
# The codes for which Megatron-LM and PaddleNLP agree and which can hold a token id.
DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
CODES = {np.dtype(dtype): code for code, dtype in DTYPES.items()}

HOW_TO_MAKE = "To make it from text: .venv/bin/python -m data_tools.tokenize --help."

BLOCK_TOKENS = 1 << 24
BLOCK_DOCUMENTS = 1 << 20
KEY_WHOLE_BYTES = 64 << 20
KEY_BLOCKS = 64
KEY_BLOCK_BYTES = 1 << 20


def token_dtype(vocab_size: int) -> np.dtype:
    """Return uint16 below 65,500 ids, else int32, as Megatron-LM and PaddleNLP choose."""
    return np.dtype(np.uint16 if vocab_size < 65500 else np.int32)


class IndexedWriter:
    """Writes a corpus document by document; it exists once the `with` block has ended without an exception.

        with IndexedWriter("data/corpus", vocab_size=32000) as writer:
            writer.add_document([1, 2, 3])

    Both files are opened first, so that a disk without room for them has none. The .idx takes its name last, and one
    from an earlier run is removed before the .bin is replaced: an interrupted write never leaves a pair that looks
    finished. Memory: 4 bytes a document.
    """

    def __init__(self, prefix: str | Path, vocab_size: int):
        self.prefix = str(prefix)
        self.vocab_size = vocab_size
        self.dtype = token_dtype(vocab_size)
        self.tokens = 0
        self._sizes = array("i")

    def __len__(self) -> int:
        return len(self._sizes)

    def __enter__(self) -> "IndexedWriter":
        with ExitStack() as files:
            self._idx = files.enter_context(written_aside(f"{self.prefix}.idx"))
            self._bin = files.enter_context(written_aside(f"{self.prefix}.bin"))
            self._files = files.pop_all()
        return self

    def __exit__(self, *exception) -> None:
        if exception[0] is not None:
            self._files.__exit__(*exception)
            return
        with self._files:  # ends the .bin first
            write_index(self._idx, np.frombuffer(self._sizes, dtype=np.int32), self.dtype)
            Path(f"{self.prefix}.idx").unlink(missing_ok=True)

    def add_document(self, ids: ArrayLike) -> None:
        """Append one document.

        Raises:
            DataError: If an id lies outside [0, vocab_size).
        """
        ids = np.asarray(ids)
        self.add_documents(ids, np.array([ids.size], dtype=np.int32))

    def add_documents(self, tokens: np.ndarray, sizes: np.ndarray) -> None:
        """Append documents: their tokens one after another, and int32 sizes.

        Raises:
            DataError: As above.
        """
        if tokens.size and not (tokens.min() >= 0 and tokens.max() < self.vocab_size):
            wrong = int(np.argmax((tokens < 0) | (tokens >= self.vocab_size)))
            document = len(self) + int(np.searchsorted(np.cumsum(sizes), wrong, side="right"))
            raise DataError(
                f"document {document} for {self.prefix}.bin: token id {tokens[wrong]}, but a vocabulary of "
                f"{self.vocab_size} has the ids 0 to {self.vocab_size - 1}. Use the tokenizer that made the "
                "ids."
            )
        self._bin.write(np.ascontiguousarray(tokens, dtype=self.dtype).data)
        self._sizes.frombytes(np.ascontiguousarray(sizes, dtype=np.int32).tobytes())
        self.tokens += tokens.size


def write_index(file: BinaryIO, sizes: np.ndarray, dtype: np.dtype) -> None:
    """Write the .idx of documents of these sizes, a document a sequence; memory does not grow with their number."""
    file.write(HEADER.pack(MAGIC, VERSION, CODES[np.dtype(dtype)], sizes.size, sizes.size + 1))
    file.write(np.ascontiguousarray(sizes).data)
    before = 0
    for start in range(0, sizes.size, BLOCK_DOCUMENTS):
        block = sizes[start : start + BLOCK_DOCUMENTS]
        file.write((before + _pointers(block, np.dtype(dtype).itemsize)).data)
        before += int(block.sum(dtype=np.int64)) * np.dtype(dtype).itemsize
    for start in range(0, sizes.size + 1, BLOCK_DOCUMENTS):
        file.write(np.arange(start, min(start + BLOCK_DOCUMENTS, sizes.size + 1), dtype=np.int64).data)


class IndexedDataset:
    """A corpus `PREFIX.bin`, `PREFIX.idx`, memory-mapped: `dataset[i]` is a view of document i, no copy.

    sizes             int32[len], tokens of each document
    document_offsets  int64, the document boundaries as stored (0, 1, ... len, with one sequence a document)
    tokens            the ids of all documents, one after another

    Raises DataError when a file is missing, is no index, or when the two files do not belong together.
    """

    def __init__(self, prefix: str | Path):
        self.prefix = str(prefix)
        self.index_path = f"{self.prefix}.idx"
        self.tokens_path = f"{self.prefix}.bin"
        for path in (self.index_path, self.tokens_path):
            if not Path(path).is_file():
                raise DataError(
                    f"{path} is missing: a corpus is PREFIX.bin and PREFIX.idx, here PREFIX is {self.prefix}."
                )
        self.dtype, sequences, boundaries = self._read_header()
        sizes_end = HEADER.size + 4 * sequences
        pointers_end = sizes_end + 8 * sequences
        index_end = pointers_end + 8 * boundaries
        self._check_size(self.index_path, index_end, f"{sequences} documents and {boundaries} boundaries")
        self._index = np.memmap(self.index_path, dtype=np.uint8, mode="r")
        self.sizes = np.asarray(self._index[HEADER.size : sizes_end]).view(np.int32)
        self.document_offsets = np.asarray(self._index[pointers_end:]).view(np.int64)
        # int32 sizes leave the pointers on an odd address: NumPy reads them all the same.
        pointers = np.asarray(self._index[sizes_end:pointers_end]).view(np.int64)
        consistent = np.array_equal(pointers, _pointers(self.sizes, self.itemsize))
        if not consistent or np.any(self.sizes < 0):
            raise DataError(
                f"{self.index_path} is damaged: expected the start of each of its {sequences} documents "
                f"where the one before ends. {HOW_TO_MAKE}"
            )
        offsets = self.document_offsets
        if not offsets.size or offsets[0] != 0 or offsets[-1] != sequences or np.any(np.diff(offsets) < 0):
            raise DataError(
                f"{self.index_path} is damaged: expected document boundaries from 0 to {sequences} in order. "
                f"{HOW_TO_MAKE}"
            )
        self._starts = pointers
        tokens = int(self.sizes.sum(dtype=np.int64))
        self._check_size(
            self.tokens_path, tokens * self.itemsize, f"{tokens} tokens of {self.dtype} in {self.index_path}"
        )
        if not tokens:
            raise DataError(f"{self.tokens_path} has no tokens, expected at least one. {HOW_TO_MAKE}")
        self._content_key = ""
        self.tokens = np.asarray(np.memmap(self.tokens_path, dtype=self.dtype, mode="r"))

    @property
    def itemsize(self) -> int:
        """Bytes of an id."""
        return self.dtype.itemsize

    def __len__(self) -> int:
        return self.sizes.size

    def __getitem__(self, i: int) -> np.ndarray:
        start = self._starts[i] // self.itemsize
        return self.tokens[start : start + self.sizes[i]]

    def content_key(self) -> str:
        """Return a SHA-256 that names this corpus in caches and records.

        It covers the whole .idx (dtype, and the size of every document: all that a sample index depends on), and the
        .bin: whole up to 64 MiB, beyond that its size and 64 blocks of 1 MiB at even distances, first and last
        included. An edit between these blocks that keeps every document's size keeps the key.
        """
        if self._content_key:
            return self._content_key
        digest = hashlib.sha256(self._index.data)
        stored = self.tokens.view(np.uint8)
        if stored.size <= KEY_WHOLE_BYTES:
            digest.update(stored.data)
        else:
            for start in np.linspace(0, stored.size - KEY_BLOCK_BYTES, KEY_BLOCKS).astype(np.int64):
                digest.update(stored[start : start + KEY_BLOCK_BYTES].data)
        self._content_key = digest.hexdigest()
        return self._content_key

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all tokens in order, in views of at most 16 M tokens."""
        for start in range(0, self.tokens.size, BLOCK_TOKENS):
            yield self.tokens[start : start + BLOCK_TOKENS]

    def largest_id(self) -> int:
        """Return the largest token id, reading the whole .bin once."""
        return max(int(block.max()) for block in self.blocks())

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raise DataError, naming id and document, when an id is outside [0, vocab_size). Reads the .bin."""
        position = 0
        for block in self.blocks():
            if block.min() < 0 or block.max() >= vocab_size:
                position += int(np.argmax((block < 0) | (block >= vocab_size)))
                document = int(np.searchsorted(self._starts, position * self.itemsize, side="right")) - 1
                raise DataError(
                    f"{self.tokens_path}: token id {self.tokens[position]} in document {document}, but the "
                    f"vocabulary has the ids 0 to {vocab_size - 1}. Use the tokenizer and model the corpus "
                    "was made for, or make it again."
                )
            position += block.size

    def _read_header(self) -> tuple[np.dtype, int, int]:
        with open(self.index_path, "rb") as file:
            header = file.read(HEADER.size)
        if not header.startswith(MAGIC):
            raise DataError(
                f"{self.index_path} is not an index: it begins with {header[: len(MAGIC)]!r}, expected "
                f"{MAGIC!r}. {HOW_TO_MAKE}"
            )
        if len(header) < HEADER.size:
            raise DataError(
                f"{self.index_path} is truncated: {len(header)} bytes, expected {HEADER.size} for its header "
                f"alone. Copy it again. {HOW_TO_MAKE}"
            )
        _, version, code, sequences, boundaries = HEADER.unpack(header)
        if version != VERSION or code not in DTYPES:
            raise DataError(
                f"{self.index_path}: version {version}, dtype code {code}; this reader knows version "
                f"{VERSION} and the codes {', '.join(map(str, DTYPES))}. {HOW_TO_MAKE}"
            )
        return np.dtype(DTYPES[code]), sequences, boundaries

    def _check_size(self, path: str, expected: int, reason: str) -> None:
        found = Path(path).stat().st_size
        if found != expected:
            trouble = "truncated" if found < expected else "too long"
            raise DataError(
                f"{path} is {trouble}, or is not of the same corpus as its neighbour: {found} bytes, "
                f"expected {expected} for {reason}. Copy both files again. {HOW_TO_MAKE}"
            )


def _pointers(sizes: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the offset of each document in the .bin, in bytes."""
    return (np.cumsum(sizes, dtype=np.int64) - sizes) * itemsize
