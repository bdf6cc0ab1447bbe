"""Look into token files: how many documents and tokens, how long, how well they are packed, and what they say.

    python -m data_tools.inspect data/corpus --tokenizer tokenizer

Without --tokenizer ids are shown instead of texts, and no bytes a token. The documents shown are drawn by --seed.
"""

import sys
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from data_tools.cli import Parser, not_negative, run
from data_tools.formats.plural import plural
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.summary import read_summary
from data_tools.terminal import sign
from data_tools.text.encoders import load_encoder

SAMPLED_DOCUMENTS = 1000
BAR_WIDTH = 40
QUANTILES = (0, 5, 25, 50, 75, 95, 100)


@dataclass(frozen=True)
class Packing:
    """Counts over a sample of documents: UTF-8 bytes and characters of their text, and tokens."""

    size: int
    characters: int
    tokens: int


def length_histogram(sizes: np.ndarray) -> list[tuple[int, int, int]]:
    """Return (from, up to, how many documents) by powers of two: 0, 1, 2-3, 4-7, ..."""
    if not sizes.size:
        return []
    bits = np.zeros(sizes.size, dtype=np.int64)
    bits[sizes > 0] = np.floor(np.log2(sizes[sizes > 0])).astype(np.int64) + 1
    counts = np.bincount(bits)
    first = int(np.flatnonzero(counts)[0])
    return [(1 << bit >> 1, max(0, (1 << bit) - 1), int(counts[bit])) for bit in range(first, counts.size)]


def packing(corpus: IndexedDataset, encoder, seed: int) -> Packing:
    """Return a line that says how much text a token stands for, from at most 1000 documents."""
    chosen = sample_documents(corpus, SAMPLED_DOCUMENTS, seed)
    texts = encoder.decode([corpus[i].tolist() for i in chosen])
    tokens = int(sum(corpus.sizes[i] for i in chosen))
    return Packing(sum(len(text.encode()) for text in texts), sum(map(len, texts)), tokens)


def sample_documents(corpus: IndexedDataset, count: int, seed: int) -> list[int]:
    """Return numbers of `count` different documents, ascending."""
    chosen = np.random.RandomState(seed).choice(len(corpus), min(count, len(corpus)), replace=False)
    return sorted(chosen.tolist())


def describe(corpus: IndexedDataset, encoder, shown: int, shown_tokens: int, seed: int, console: Console) -> None:
    """Print all there is to say."""
    summary = read_summary(corpus)
    largest = summary.largest_id if summary else corpus.largest_id()
    counts = f"{plural(len(corpus), 'document')}, {corpus.tokens.size:,} tokens"
    console.print(f"{corpus.prefix}: {counts}, {corpus.dtype}, ids up to {largest:,}", highlight=False, soft_wrap=True)
    if encoder:
        packed = packing(corpus, encoder, seed)
        console.print(
            f"{packed.size / packed.tokens:.2f} bytes a token, {packed.tokens / packed.size:.3f} tokens a byte, "
            f"{packed.tokens / max(1, packed.characters):.3f} tokens a character",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    quantiles = np.percentile(corpus.sizes, QUANTILES, method="nearest").astype(int)
    described = ", ".join(f"{share} %: {size:,}" for share, size in zip(QUANTILES, quantiles, strict=True))
    console.print(f"tokens a document: mean {corpus.sizes.mean():,.1f}; {described}", highlight=False, soft_wrap=True)
    console.print(_histogram_table(corpus.sizes))
    for i in sample_documents(corpus, shown, seed):
        ids = corpus[i][:shown_tokens].tolist()
        content = encoder.decode([ids])[0] if encoder else " ".join(map(str, ids))
        more = " ..." if corpus.sizes[i] > shown_tokens else ""
        console.print(f"\ndocument {i:,}, {corpus.sizes[i]:,} tokens:", highlight=False)
        console.print(content + more, highlight=False, soft_wrap=True)


def _histogram_table(sizes: np.ndarray) -> Table:
    table = Table("tokens", "documents", "", box=None)
    table.columns[0].justify = table.columns[1].justify = "right"
    rows = length_histogram(sizes)
    most = max(count for _, _, count in rows)
    block = sign("█", "#", sys.stdout)
    for low, high, count in rows:
        bar = block * (BAR_WIDTH * count // most)
        table.add_row(f"{low:,} - {high:,}" if high > low else f"{low:,}", f"{count:,}", bar)
    return table


def main() -> None:
    """Run the command."""
    parser = Parser("python -m data_tools.inspect", __doc__)
    parser.add_argument("prefix", metavar="PREFIX", help="PREFIX.bin and PREFIX.idx")
    parser.add_argument("--tokenizer", metavar="DIR", help="the tokenizer they were made with")
    parser.add_argument("--documents", type=not_negative, default=3, metavar="N", help="shown (default: 3)")
    parser.add_argument("--tokens", type=not_negative, default=100, metavar="N", help="shown of each (default: 100)")
    parser.add_argument("--seed", type=not_negative, default=0, help="which documents are shown (default: 0)")
    args = parser.parse_args()
    encoder = load_encoder(args.tokenizer) if args.tokenizer else None
    describe(IndexedDataset(args.prefix), encoder, args.documents, args.tokens, args.seed, Console(markup=False))


if __name__ == "__main__":
    run(main)
