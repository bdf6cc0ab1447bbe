r"""Check token files: whole, consistent, unchanged, ids within the vocabulary, and the text they were made from.

    python -m data_tools.verify data/corpus --tokenizer tokenizer \
        --against texts

Opening a corpus checks both files' sizes and that each document starts where the one before ends. The SHA-256 of the
.bin is compared with PREFIX.summary.json, where there is one. --vocab_size or --tokenizer checks every id; --against
decodes every document and compares it with its source, as far as the tokenizer keeps text (normalization).
"""

import sys
from pathlib import Path

from data_tools.cli import Parser, above_zero, not_negative, run
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.summary import check_hash
from data_tools.progress import progress
from data_tools.terminal import marks
from data_tools.text.encoders import load_encoder
from data_tools.text.sources import Document, batches, find_files, read_documents, total_bytes

SHOWN = 30


def compare_with_source(
    corpus: IndexedDataset, tokenizer_dir: str | Path, inputs: list[str], text_key: str = "text", max_bad_lines: int = 0
) -> None:
    """Raise DataError at the first document that does not decode to the text of its source.

    max_bad_lines: lines that are no documents, and were left out of the corpus, too.
    """
    encoder, files = load_encoder(tokenizer_dir), find_files(inputs)
    number = 0
    with progress("comparing", total_bytes(files)) as advance:
        for batch in batches(read_documents(files, text_key, max_bad_lines)):
            with_text = [document for document in batch if document.text]
            if number + len(with_text) > len(corpus):
                raise DataError(
                    f"{corpus.prefix} has {plural(len(corpus), 'document')}, its source has more: "
                    f"{with_text[len(corpus) - number].where} is not in it. Name the files it was made from, "
                    "or make it again."
                )
            ids = [corpus[number + i].tolist() for i in range(len(with_text))]
            ids = [one[:-1] if one and one[-1] == encoder.eos_id else one for one in ids]
            for document, decoded in zip(with_text, encoder.decode(ids), strict=True):
                _compare(corpus, number, document, decoded, encoder.as_decoded(document.text))
                number += 1
            advance(sum(document.size for document in batch), len(with_text))
    if number < len(corpus):
        raise DataError(
            f"{corpus.prefix} has {plural(len(corpus), 'document')}, its source only {number}. Name all files of it."
        )


def _compare(corpus: IndexedDataset, number: int, source: Document, decoded: str, expected: str) -> None:
    if decoded == expected:
        return
    at = next(
        (i for i, (a, b) in enumerate(zip(decoded, expected, strict=False)) if a != b),
        min(len(decoded), len(expected)),
    )
    raise DataError(
        f"{corpus.prefix}, document {number}: decodes to {decoded[at : at + SHOWN]!r} at character {at}, but "
        f"{source.where} has {expected[at : at + SHOWN]!r} there. Name the files and the tokenizer it was made "
        "with, or make it again."
    )


def main() -> None:
    """Run the command."""
    parser = Parser("python -m data_tools.verify", __doc__)
    parser.add_argument("prefix", metavar="PREFIX", help="PREFIX.bin and PREFIX.idx are checked")
    vocabulary = parser.add_mutually_exclusive_group()
    vocabulary.add_argument("--vocab_size", type=above_zero, help="ids must be below this")
    vocabulary.add_argument("--tokenizer", metavar="DIR", help="ids must be of this tokenizer")
    parser.add_argument("--against", nargs="+", metavar="FILE", help="the text it was made from; needs --tokenizer")
    parser.add_argument("--text_key", default="text", help="the key, or column, that holds the text (default: text)")
    parser.add_argument(
        "--max_bad_lines", type=not_negative, default=0, metavar="N", help="pass over up to N that are no documents"
    )
    args = parser.parse_args()
    if args.against and not args.tokenizer:
        parser.error("--against needs --tokenizer to decode with")

    good, _ = marks(sys.stdout)
    corpus = IndexedDataset(args.prefix)
    tokens = plural(corpus.tokens.size, "token")
    print(f"{good} {corpus.prefix}: {plural(len(corpus), 'document')}, {tokens}, {corpus.dtype}")
    sha256, compared = check_hash(corpus)
    print(f"{good} SHA-256 of the .bin {sha256}" + (", as when it was written" if compared else ""))
    vocab_size = load_encoder(args.tokenizer).vocab_size if args.tokenizer else args.vocab_size
    if vocab_size is not None:
        corpus.check_vocabulary(vocab_size)
        print(f"{good} every id is below {vocab_size}; the largest is {corpus.largest_id()}")
    if args.against:
        compare_with_source(corpus, args.tokenizer, args.against, args.text_key, args.max_bad_lines)
        print(f"{good} every document decodes to its source, {len(find_files(args.against))} file(s)")


if __name__ == "__main__":
    run(main)
