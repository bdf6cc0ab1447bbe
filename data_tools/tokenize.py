"""Text to token files: JSONL or .txt to PREFIX.bin and PREFIX.idx.

    python -m data_tools.tokenize --input text/train.jsonl --tokenizer tokenizer --output data/corpus

An end-of-sequence token follows each document, unless --no_eos; empty texts are left out. Any mistake in the
input stops the command and leaves the output as it was.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_tools.cli import Parser, progress, run
from data_tools.formats.errors import DataError
from data_tools.formats.indexed import IndexedWriter
from data_tools.sources import batches, read_documents, total_bytes
from data_tools.tokenizer import load_tokenizer


@dataclass(frozen=True)
class Tokenized:
    documents: int
    tokens: int
    empty: int  # documents left out
    text_bytes: int


def tokenize_files(
    files: list[str], tokenizer_dir: str | Path, prefix: str | Path, text_key: str = "text", eos: bool = True
) -> Tokenized:
    """Write the corpus `prefix` from text files; memory is that of a batch and 4 bytes a document.

    Raises DataError for input that cannot be read, with file and line; `prefix` is then as it was.
    """
    total = total_bytes(files)
    tokenizer = load_tokenizer(tokenizer_dir)
    end = np.array([tokenizer.eos_id()] if eos else [], dtype=np.int32)
    empty = 0
    with (
        IndexedWriter(prefix, tokenizer.get_piece_size()) as writer,
        progress("tokenizing", total) as advance,
    ):
        for batch in batches(read_documents(files, text_key)):
            texts = [document.text for document in batch if document.text]
            empty += len(batch) - len(texts)
            for ids in tokenizer.encode(texts, out_type="numpy"):
                writer.add_document(np.concatenate([ids, end]))
            advance(sum(document.size for document in batch))
        if not writer.tokens:
            raise DataError(
                f"{', '.join(files)}: no text in them, {empty} empty documents. Give files with text."
            )
    return Tokenized(len(writer), writer.tokens, empty, total)


def main() -> None:
    parser = Parser("tokenize", __doc__)
    parser.add_argument(
        "--input", required=True, nargs="+", metavar="FILE", help="JSONL, or .txt (one document a file)"
    )
    parser.add_argument(
        "--tokenizer", required=True, metavar="DIR", help="a directory with a sentencepiece model"
    )
    parser.add_argument("--output", required=True, metavar="PREFIX", help="writes PREFIX.bin and PREFIX.idx")
    parser.add_argument(
        "--text_key", default="text", help="where the text is in a JSON object (default: text)"
    )
    parser.add_argument("--no_eos", action="store_true", help="no end-of-sequence token after each document")
    args = parser.parse_args()
    done = tokenize_files(args.input, args.tokenizer, args.output, args.text_key, not args.no_eos)
    left_out = f", {done.empty} empty left out" if done.empty else ""
    print(
        f"{args.output}.bin, .idx: {done.documents} documents{left_out}, {done.tokens} tokens, "
        f"{done.text_bytes / done.tokens:.2f} bytes of input a token"
    )


if __name__ == "__main__":
    run(main)
