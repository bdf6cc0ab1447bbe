"""Put several corpora into one, document after document, in the order given.

    python -m data_tools.merge --output data/all data/part1 data/part2

They must have been made with the same tokenizer, as far as their summaries tell. To mix corpora in training there is no
need to merge: see data_tools.blend.
"""

from pathlib import Path

import numpy as np

from data_tools.cli import BEGINS_ANEW, Parser, run
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural
from data_tools.formats.tokens.indexed import IndexedDataset, IndexedWriter
from data_tools.formats.tokens.summary import check_hash, read_summary, summary_path, write_summary
from data_tools.progress import progress

DOCUMENTS_AT_ONCE = 4096


def merge_corpora(prefixes: list[str], output: str | Path) -> int:
    """Write the corpus `output`; the number of its documents.

    Raises:
        DataError: If they do not go together.
    """
    corpora = [IndexedDataset(prefix) for prefix in prefixes]
    tokenizer = common_tokenizer(corpora)
    for corpus in corpora:
        if Path(f"{output}.bin").exists() and Path(f"{output}.bin").samefile(corpus.tokens_path):
            raise DataError(f"{output} is one of those to be merged. Name another --output.")
    total = sum(corpus.tokens.nbytes for corpus in corpora)
    with IndexedWriter(output, id_limit(corpora)) as writer, progress("merging", total) as advance:
        for corpus in corpora:
            for tokens, sizes in document_blocks(corpus):
                writer.add_documents(tokens, sizes)
                advance(tokens.nbytes, sizes.size, tokens.size)
    write_summary(output, {"merged": [Path(prefix).name for prefix in prefixes], "tokenizer": tokenizer})
    return len(writer)


def common_tokenizer(corpora: list[IndexedDataset]) -> str | None:
    """Return the fingerprint of the tokenizer of all corpora; None where no summary has it.

    Raises:
        DataError: If they differ, where a document of several sequences would be torn apart, and where a .bin is not
            what its summary was written for.
    """
    known = {}
    for corpus in corpora:
        if corpus.document_offsets.size != len(corpus) + 1:
            raise DataError(
                f"{corpus.prefix} has documents of several sequences, which these tools do not write. Make it again "
                "with data_tools.tokenize."
            )
        if summary_path(corpus.prefix).is_file():
            check_hash(corpus)  # or the result's summary would vouch for what is damaged
        summary = read_summary(corpus)
        if summary and summary.made.get("tokenizer"):
            known.setdefault(summary.made["tokenizer"], corpus.prefix)
    if len(known) > 1:
        raise DataError(f"{' and '.join(known.values())} were made with different tokenizers. Tokenize them with one.")
    return next(iter(known), None)


def id_limit(corpora: list[IndexedDataset]) -> int:
    """Return the vocabulary size that gives the widest id type of these corpora."""
    return 65_499 if all(corpus.dtype == np.uint16 for corpus in corpora) else np.iinfo(np.int32).max


def document_blocks(corpus: IndexedDataset):
    """Yield (tokens, sizes) of the documents in order, some thousand at once, as views of the files."""
    ends = np.cumsum(corpus.sizes, dtype=np.int64)
    for first in range(0, len(corpus), DOCUMENTS_AT_ONCE):
        sizes = corpus.sizes[first : first + DOCUMENTS_AT_ONCE]
        start = int(ends[first] - corpus.sizes[first])
        yield corpus.tokens[start : start + int(sizes.sum(dtype=np.int64))], sizes


def main() -> None:
    """Run the command."""
    parser = Parser("python -m data_tools.merge", __doc__)
    parser.add_argument("prefixes", nargs="+", metavar="PREFIX", help="corpora PREFIX.bin, PREFIX.idx")
    parser.add_argument("--output", required=True, metavar="PREFIX", help="the corpus to write")
    args = parser.parse_args()
    documents = merge_corpora(args.prefixes, args.output)
    corpora = plural(len(args.prefixes), "corpus", "corpora")
    print(f"{args.output}.bin, .idx: {plural(documents, 'document')} of {corpora}")


if __name__ == "__main__":
    run(main, BEGINS_ANEW)
