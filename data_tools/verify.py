"""Check token files: whole, consistent, ids within the vocabulary, and the text they were made from.

    python -m data_tools.verify data/corpus --tokenizer tokenizer --against text/train.jsonl

Opening a corpus checks both files' sizes and that each document starts where the one before ends.
--vocab_size or --tokenizer checks every id; --against decodes every document and compares it with its source.
"""

from pathlib import Path

from data_tools.cli import Parser, progress, run
from data_tools.formats.errors import DataError
from data_tools.formats.indexed import IndexedDataset
from data_tools.sources import Document, batches, read_documents, total_bytes
from data_tools.tokenizer import load_tokenizer

SHOWN = 30


def compare_with_source(
    corpus: IndexedDataset, tokenizer_dir: str | Path, files: list[str], text_key: str = "text"
) -> None:
    """Raise DataError at the first document that does not decode to the text of its source."""
    tokenizer = load_tokenizer(tokenizer_dir)
    number = 0
    with progress("comparing", total_bytes(files)) as advance:
        for batch in batches(read_documents(files, text_key)):
            with_text = [document for document in batch if document.text]
            if number + len(with_text) > len(corpus):
                raise DataError(
                    f"{corpus.prefix} has {len(corpus)} documents, its source has more: "
                    f"{with_text[len(corpus) - number].where} is not in it. Name the files it was made from, "
                    "or make it again."
                )
            ids = [corpus[number + i].tolist() for i in range(len(with_text))]
            for document, decoded in zip(with_text, tokenizer.decode(ids), strict=True):
                _compare(corpus, number, document, decoded)
                number += 1
            advance(sum(document.size for document in batch))
    if number < len(corpus):
        raise DataError(
            f"{corpus.prefix} has {len(corpus)} documents, its source only {number}. Name all files of it."
        )


def _compare(corpus: IndexedDataset, number: int, source: Document, decoded: str) -> None:
    text = source.text.replace("\u2581", " ")  # sentencepiece writes a space as U+2581: that one is not kept
    if decoded == text:
        return
    at = next(
        (i for i, (a, b) in enumerate(zip(decoded, text, strict=False)) if a != b),
        min(len(decoded), len(text)),
    )
    raise DataError(
        f"{corpus.prefix}, document {number}: decodes to {decoded[at : at + SHOWN]!r} at character {at}, but "
        f"{source.where} has {text[at : at + SHOWN]!r} there. Name the files and the tokenizer it was made "
        "with, or make it again."
    )


def main() -> None:
    parser = Parser("verify", __doc__)
    parser.add_argument("prefix", metavar="PREFIX", help="PREFIX.bin and PREFIX.idx are checked")
    vocabulary = parser.add_mutually_exclusive_group()
    vocabulary.add_argument("--vocab_size", type=int, help="ids must be below this")
    vocabulary.add_argument("--tokenizer", metavar="DIR", help="ids must be of this tokenizer")
    parser.add_argument(
        "--against", nargs="+", metavar="FILE", help="the text it was made from; needs --tokenizer"
    )
    parser.add_argument(
        "--text_key", default="text", help="where the text is in a JSON object (default: text)"
    )
    args = parser.parse_args()
    if args.against and not args.tokenizer:
        parser.error("--against needs --tokenizer to decode with")

    corpus = IndexedDataset(args.prefix)
    print(f"✓ {corpus.prefix}: {len(corpus)} documents, {corpus.tokens.size} tokens, {corpus.dtype}")
    vocab_size = load_tokenizer(args.tokenizer).get_piece_size() if args.tokenizer else args.vocab_size
    if vocab_size is not None:
        corpus.check_vocabulary(vocab_size)
        print(f"✓ every id is below {vocab_size}; the largest is {corpus.largest_id()}")
    if args.against:
        compare_with_source(corpus, args.tokenizer, args.against, args.text_key)
        print(f"✓ every document decodes to its source, {len(args.against)} file(s)")


if __name__ == "__main__":
    run(main)
