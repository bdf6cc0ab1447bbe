"""Writing a corpus that goes on where it stopped: shard after shard, each recorded once it is safely on disk.

    PREFIX.bin.partial      tokens so far
    PREFIX.sizes.partial    int32 tokens of each document so far
    PREFIX.progress.json    the record: how much of both is valid, and what the writer needs to go on

The record is replaced in one step after both files are on disk. What is behind its numbers after a crash is cut off and
made again. PREFIX.bin and .idx appear at the end alone, and an earlier pair stays until then.
"""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from data_tools.formats.atomic import DISK_FULL, open_alone, write_all, written_aside
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import read_object
from data_tools.formats.tokens.indexed import write_index
from data_tools.formats.tokens.summary import READ_BYTES, file_sha256, write_summary

CHECK = "record_sha256"  # key of the record: the checksum of all others
NO_ROOM = (*DISK_FULL, errno.EFBIG)


class ResumableWriter:
    """One writer of the corpus `prefix`, in a `with` block.

        with ResumableWriter("data/corpus", np.uint16, identity={...}) as writer:
            state = writer.state            # of the last commit; None when nothing was committed
            writer.append(tokens, sizes)    # any number of documents
            writer.commit({...})            # from here on a crash costs nothing of these
            writer.finish(made={...})

    Raises DataError when unfinished work has another identity (restart=True drops it), another process writes this
    corpus, or the disk is full.

    Attributes:
        identity: All that decides the bytes (input, tokenizer, options), a JSON object.
    """

    def __init__(self, prefix: str | Path, dtype: np.dtype, identity: dict, restart: bool = False):
        self.prefix = str(prefix)
        self.dtype = np.dtype(dtype)
        self.state: dict | None = None
        self.tokens = self.documents = 0
        self.largest_id = -1
        self._identity, self._restart = identity, restart
        self._record_path = Path(f"{self.prefix}.progress.json")
        self._bin_path, self._sizes_path = (Path(f"{self.prefix}.{part}.partial") for part in ("bin", "sizes"))
        self._digest = hashlib.sha256()

    def __enter__(self) -> "ResumableWriter":
        try:
            Path(self.prefix).parent.mkdir(parents=True, exist_ok=True)
            self._sizes = open_alone(self._sizes_path)
            self._bin = open(self._bin_path, "ab+", buffering=0)
        except OSError as error:
            raise DataError(
                f"cannot write {self.prefix}.bin: {error.strerror}. Name a folder you may write to."
            ) from None
        try:
            self._go_back_to(self._committed())
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *exception) -> None:
        self._close()
        if self.state is None:  # nothing to go on with
            for path in (self._bin_path, self._sizes_path):
                path.unlink(missing_ok=True)

    def append(self, tokens: np.ndarray, sizes: np.ndarray) -> None:
        """Add documents: their tokens one after another, and how many each has."""
        content = np.ascontiguousarray(tokens, dtype=self.dtype).data.cast("B") if tokens.size else b""
        with self._room():
            write_all(self._bin, content)
            write_all(self._sizes, np.ascontiguousarray(sizes, dtype=np.int32).tobytes())
        self._digest.update(content)
        self.tokens += tokens.size
        self.documents += sizes.size
        self.largest_id = max(self.largest_id, int(tokens.max()) if tokens.size else -1)

    def commit(self, state: dict) -> None:
        """Record what has been appended, with a JSON object to go on from."""
        record = {
            "identity": self._identity, "state": state, "tokens": self.tokens, "documents": self.documents,
            "largest_id": self.largest_id, "sha256": self._digest.hexdigest(),
        }  # fmt: skip
        record |= {CHECK: _checksum(record)}
        with self._room():
            os.fsync(self._bin.fileno())
            os.fsync(self._sizes.fileno())
            with written_aside(self._record_path) as file:
                file.write(json.dumps(record).encode())
        self.state = state

    def finish(self, made: dict) -> None:
        """Give the corpus its name: everything must be committed. The .idx comes last, as in IndexedWriter."""
        sizes = np.memmap(self._sizes_path, dtype=np.int32, mode="r") if self.documents else np.empty(0, np.int32)
        with self._room():
            Path(f"{self.prefix}.idx").unlink(missing_ok=True)
            with written_aside(f"{self.prefix}.idx") as file:
                write_index(file, sizes, self.dtype)
                os.replace(self._bin_path, f"{self.prefix}.bin")
            write_summary(self.prefix, made, self.largest_id, self._digest.hexdigest())
        self._record_path.unlink()
        self._sizes_path.unlink()  # last: whoever holds it may write this corpus

    def _committed(self) -> dict | None:
        """Return the record to continue from. Raises DataError when it is of other work."""
        if self._restart or not self._record_path.is_file():
            return None
        try:
            record = read_object(self._record_path)
        except DataError:
            record = {}
        if record.pop(CHECK, None) != _checksum(record):
            raise DataError(
                f"{self._record_path} is damaged, or from before records had a checksum. Begin anew: --restart."
            )
        theirs = record["identity"]
        differing = [key for key in {**theirs, **self._identity} if theirs.get(key) != self._identity.get(key)]
        if differing:
            raise DataError(
                f"{self._record_path}: unfinished work of {record['tokens']:,} tokens, made with other "
                f"{', '.join(differing)}. Give the same to go on, or --restart to drop it and begin anew."
            )
        return record

    def _go_back_to(self, record: dict | None) -> None:
        if record is None:
            self._record_path.unlink(missing_ok=True)
        else:
            self.state, self.tokens, self.documents = record["state"], record["tokens"], record["documents"]
            self.largest_id = record["largest_id"]
            self._take_back(record["sha256"])
        os.ftruncate(self._bin.fileno(), self.tokens * self.dtype.itemsize)
        os.ftruncate(self._sizes.fileno(), 4 * self.documents)
        self._bin.seek(0)
        while block := self._bin.read(READ_BYTES):
            self._digest.update(block)
        if record is not None and self._digest.hexdigest() != record["sha256"]:
            raise DataError(f"{self._bin_path} is not what was recorded. Begin anew: --restart.")

    def _take_back(self, sha256: str) -> None:
        """Rename the finished .bin back to the partial name after a crash in the middle of `finish`."""
        finished = Path(f"{self.prefix}.bin")
        if self._bin_path.stat().st_size == 0 and finished.is_file() and file_sha256(finished) == sha256:
            self._bin.close()
            os.replace(finished, self._bin_path)
            self._bin = open(self._bin_path, "ab+", buffering=0)

    def _close(self) -> None:
        self._bin.close()
        self._sizes.close()

    @contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            kept = "nothing is kept"
            if self.state:
                record = json.loads(self._record_path.read_bytes())
                done = f"{record['documents']:,} documents, {record['tokens']:,} tokens"
                kept = f"what was done until then is kept: {done}"
            raise DataError(
                f"no room for {self.prefix}.bin ({error.strerror}): {kept}. Make room and give the same command "
                "again: it goes on."
            ) from None


def _checksum(record: dict) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
