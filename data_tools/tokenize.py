r"""Text to token files: PREFIX.bin and PREFIX.idx, as Megatron-LM and PaddleNLP have them.

    python -m data_tools.tokenize --input texts --tokenizer tokenizer \
        --output data/corpus

Input is JSON lines, .txt (one document a file) or Parquet; .gz and .zst; files, folders, patterns, or - for stdin.
An end-of-sequence token follows each document, unless --no_eos; empty texts are left out. The documents come in the
order of the input, whatever the number of workers.

Interrupted or killed, the same command goes on where it stopped, and the result is the same to the byte. A line that is
no document stops it, unless --max_bad_lines allows some; an earlier corpus of the same name stays until the end.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from data_tools.cli import GOES_ON, Parser, not_negative, run
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural
from data_tools.formats.tokens.indexed import token_dtype
from data_tools.formats.tokens.resumable import ResumableWriter
from data_tools.progress import progress
from data_tools.text.blocks import STDIN, Block, ReadingPlace, read_blocks
from data_tools.text.encoders import CONFIG_NAME, fingerprint, load_encoder
from data_tools.text.sources import BadLine, BadLines, documents, find_files, total_bytes
from data_tools.text.workers import Workers, at_most_cores

GOES_ON_WITHOUT_RESTART = "the same command without --restart goes on"
SECONDS_BETWEEN_COMMITS = 5.0
SMALL_BYTES = 8 << 20  # below, starting workers costs more than it brings


@dataclass(frozen=True)
class Tokenized:
    """The work done so far: documents and tokens written, empty documents and bad lines left out."""

    documents: int = 0
    tokens: int = 0
    empty: int = 0
    bad_lines: int = 0
    input_bytes: int = 0  # as stored: packed, if the file is


@dataclass(frozen=True)
class EncodedBlock:
    """Documents of a block: tokens one after another, sizes int32; bad_lines: the reason of each."""

    tokens: np.ndarray
    sizes: np.ndarray
    empty: int
    bad_lines: list[str]


def block_encoder(encoder, text_key: str, eos: bool) -> Callable[[Block], EncodedBlock]:
    """Return the function that workers apply to blocks."""
    dtype = token_dtype(encoder.vocab_size)
    end = np.array([encoder.eos_id] if eos else [], dtype=np.int32)

    def encode(block: Block) -> EncodedBlock:
        found = list(documents(block, text_key))
        bad_lines = [line.reason for line in found if isinstance(line, BadLine)]
        texts = [document.text for document in found if not isinstance(document, BadLine) and document.text]
        ids = encoder.encode(texts)
        sizes = np.array([document.size for document in ids], dtype=np.int32) + np.int32(end.size)
        pieces = [piece for document in ids for piece in (document, end)]
        tokens = np.concatenate(pieces).astype(dtype) if pieces else np.empty(0, dtype)
        return EncodedBlock(tokens, sizes, len(found) - len(bad_lines) - len(texts), bad_lines)

    return encode


def tokenize_files(
    inputs: list[str],
    tokenizer_dir: str | Path,
    prefix: str | Path,
    text_key: str = "text",
    eos: bool = True,
    workers: int | None = None,
    max_bad_lines: int = 0,
    restart: bool = False,
) -> Tokenized:
    """Write the corpus `prefix` from text, continuing unfinished work that has the same input and options.

    workers: processes that encode; None finds the number that is fastest, 0 encodes in this process. Memory is that of
    a few blocks a worker and does not grow with the input.

    Raises:
        DataError: For input that cannot be read, with file and line; `prefix` is then as it was.
    """
    files = find_files(inputs)
    total = total_bytes(files)
    encoder = load_encoder(tokenizer_dir)
    if eos and encoder.eos_id is None:
        raise DataError(
            f"{encoder.path} names no end-of-sequence token: add eos_token to {CONFIG_NAME} beside it, or give "
            "--no_eos."
        )
    identity = {
        "input": [_identity_of(file) for file in files],
        "tokenizer": fingerprint(encoder),
        "text_key": text_key,
        "eos": eos,
    }
    if workers is None and total < SMALL_BYTES and files != [STDIN]:
        workers = 0
    with (
        Workers(block_encoder(encoder, text_key, eos), workers) as pool,
        ResumableWriter(prefix, token_dtype(encoder.vocab_size), identity, restart) as writer,
    ):
        done = _tokenize(files, text_key, total, pool, writer, max_bad_lines)
        if pool.speeds:
            tried = ", ".join(f"{count}: {speed / 1e6:.1f} MB/s" for count, speed in sorted(pool.speeds.items()))
            print(f"workers: {pool.active} ({tried})", file=sys.stderr)
        made = {
            **identity, "input": [[os.path.basename(file), total_bytes([file])] for file in files],
            "vocab_size": encoder.vocab_size, "empty": done.empty, "bad_lines": done.bad_lines,
        }  # fmt: skip
        writer.finish(made)
    return done


def _tokenize(
    files: list[str], text_key: str, total: int, pool: Workers, writer: ResumableWriter, max_bad_lines: int
) -> Tokenized:
    place, empty, input_bytes, bad_lines = ReadingPlace(), 0, 0, BadLines(max_bad_lines)
    if writer.state:
        place, empty, input_bytes = (
            ReadingPlace(**writer.state["place"]),
            writer.state["empty"],
            writer.state["input_bytes"],
        )
        bad_lines.count = writer.state["bad_lines"]
        print(f"going on after {plural(writer.documents, 'document')} of an earlier run", file=sys.stderr, flush=True)

    def commit() -> None:
        counts = {"empty": empty, "input_bytes": input_bytes, "bad_lines": bad_lines.count}
        writer.commit({"place": asdict(place), **counts})

    committed = time.monotonic()
    with progress("tokenizing", total, input_bytes) as advance:
        for block, encoded in pool.in_order(read_blocks(files, text_key, place)):
            bad_lines.add(encoded.bad_lines)
            writer.append(encoded.tokens, encoded.sizes)
            place = block.next
            empty += encoded.empty
            input_bytes += block.size
            advance(block.size, encoded.sizes.size, encoded.tokens.size)
            if time.monotonic() - committed >= SECONDS_BETWEEN_COMMITS:
                commit()
                committed = time.monotonic()
    if not writer.tokens:
        raise DataError(f"{', '.join(files)}: no text in them, {empty} empty documents. Give files with text.")
    commit()
    return Tokenized(writer.documents, writer.tokens, empty, bad_lines.count, input_bytes)


def _identity_of(file: str) -> list:
    """Return what identifies a file's content: path, size, time of the last change."""
    if file == STDIN:
        return [file]  # checked by what was read of it (Place.checksum)
    status = os.stat(file)
    return [os.path.abspath(file), status.st_size, status.st_mtime_ns]


def main() -> None:
    """Run the command."""
    parser = Parser("python -m data_tools.tokenize", __doc__)
    parser.add_argument("--input", required=True, nargs="+", metavar="FILE", help="files, folders, patterns; -: stdin")
    parser.add_argument(
        "--tokenizer", required=True, metavar="DIR", help="a directory with a sentencepiece model or tokenizer.json"
    )
    parser.add_argument("--output", required=True, metavar="PREFIX", help="writes PREFIX.bin and PREFIX.idx")
    parser.add_argument("--text_key", default="text", help="the key, or column, that holds the text (default: text)")
    parser.add_argument("--no_eos", action="store_true", help="no end-of-sequence token after each document")
    parser.add_argument("--workers", type=not_negative, help="processes that encode (default: as many as help)")
    parser.add_argument(
        "--max_bad_lines", type=not_negative, default=0, metavar="N", help="drop up to N lines that are no documents"
    )
    parser.add_argument("--restart", action="store_true", help="drop what an interrupted run has done")
    args = parser.parse_args()
    done = tokenize_files(
        args.input, args.tokenizer, args.output, args.text_key, not args.no_eos, at_most_cores(args.workers),
        args.max_bad_lines, args.restart,
    )  # fmt: skip
    left_out = f", {done.empty} empty left out" if done.empty else ""
    left_out += f", {plural(done.bad_lines, 'bad line')} left out" if done.bad_lines else ""
    print(
        f"{args.output}.bin, .idx: {plural(done.documents, 'document')}{left_out}, {plural(done.tokens, 'token')}, "
        f"{done.input_bytes / done.tokens:.2f} bytes of input a token"
    )


if __name__ == "__main__":
    run(main, GOES_ON if "--restart" not in sys.argv else GOES_ON_WITHOUT_RESTART)
