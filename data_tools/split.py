"""Divide a corpus by documents, such as to keep some of it apart for evaluation.

    python -m data_tools.split data/corpus --output data/split --shares 98,1,1

writes data/split/train, data/split/valid and data/split/test (.bin, .idx). Where a document goes depends on nothing but
its tokens: copies stay on one side, and a larger corpus sends the same documents to the same sides. So shares are met
as closely as chance does. (In training `--split` divides a corpus by the order of its documents, without writing.)
"""

import hashlib
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from data_tools.cli import BEGINS_ANEW, Parser, run
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural
from data_tools.formats.tokens.indexed import IndexedDataset, IndexedWriter
from data_tools.formats.tokens.samples import split_boundaries
from data_tools.formats.tokens.summary import write_summary
from data_tools.merge import common_tokenizer, id_limit
from data_tools.progress import progress

NAMES = ("train", "valid", "test")
SCALE = 1 << 32


def split_corpus(prefix: str, folder: str | Path, shares: str) -> dict[str, int]:
    """Write a corpus for each share above 0; {prefix: documents}.

    Raises:
        DataError: If one would be empty.
    """
    corpus = IndexedDataset(prefix)
    tokenizer = common_tokenizer([corpus])
    boundaries = split_boundaries(shares, SCALE)
    sides = [side for side in range(len(NAMES)) if boundaries[side + 1] > boundaries[side]]
    prefixes = {side: f"{folder}/{NAMES[side]}" for side in sides}
    with ExitStack() as stack:
        writers = {side: stack.enter_context(IndexedWriter(prefixes[side], id_limit([corpus]))) for side in sides}
        advance = stack.enter_context(progress("splitting", corpus.tokens.nbytes))
        for document in corpus:
            place = int.from_bytes(hashlib.blake2b(document.tobytes(), digest_size=4).digest(), "little")
            side = int(np.searchsorted(boundaries[1:], place, side="right"))
            writers[side].add_document(document)
            advance(document.nbytes, 1, document.size)
        for side, writer in writers.items():
            if not writer.tokens:
                raise DataError(
                    f"{prefix}: no document of {len(corpus)} goes to {NAMES[side]}. Give it a larger share than in "
                    f"--shares {shares}."
                )
    for side in sides:
        write_summary(prefixes[side], {"split": [Path(prefix).name, shares], "tokenizer": tokenizer})
    return {prefixes[side]: len(writers[side]) for side in sides}


def main() -> None:
    """Run the command."""
    parser = Parser("python -m data_tools.split", __doc__)
    parser.add_argument("prefix", metavar="PREFIX", help="the corpus PREFIX.bin, PREFIX.idx")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder for train, valid and test")
    parser.add_argument("--shares", default="98,1,1", help="of train, valid, test (default: 98,1,1)")
    args = parser.parse_args()
    for prefix, documents in split_corpus(args.prefix, args.output, args.shares).items():
        print(f"{prefix}.bin, .idx: {plural(documents, 'document')}")


if __name__ == "__main__":
    run(main, BEGINS_ANEW)
