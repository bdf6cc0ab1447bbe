r"""What a blend of corpora gives a run: samples, tokens and epochs of each.

    python -m data_tools.blend 0.7 data/books 0.3 data/code \
        --sequence_length 2048 --tokens 10e9

Nothing is written: training mixes while it reads, given the same words: `--input_dir 0.7 data/books 0.3 data/code`. An
epoch of a blend ends where the first corpus is used up; a longer run reads that one again in another order, and goes on
with the rest of the others. After every sample of an epoch each corpus has given its share of it, rounded up or down.
"""

import shlex
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from data_tools.cli import Parser, above_zero, amount, run
from data_tools.formats.blended import BlendedDataset
from data_tools.formats.errors import DataError
from data_tools.formats.tokens.blend import find_corpora
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.samples import Split, split_boundaries


@dataclass(frozen=True)
class BlendSource:
    """A corpus of a blend.

    Attributes:
        samples: That its train split has.
        used: That the run takes; sequence_length in tokens.
    """

    prefix: str
    share: float
    samples: int
    used: int
    sequence_length: int

    @property
    def epochs(self) -> float:
        """Number of times that the run reads this corpus."""
        return self.used / self.samples

    @property
    def tokens(self) -> int:
        """Number of tokens that the run takes from this corpus."""
        return self.used * self.sequence_length


def plan_blend(input_dir: str, sequence_length: int, split: str, tokens: float | None) -> tuple[list[BlendSource], int]:
    """Return what each corpus contributes to a run, and the samples of one epoch of the blend.

    tokens: of the run; None means one epoch.

    Raises:
        DataError: If a corpus is missing or damaged, or gives no sample.
    """
    weights, prefixes = zip(*find_corpora(input_dir), strict=True)
    samples = [_train_samples(prefix, split, sequence_length) for prefix in prefixes]
    weighted = weights[0] is not None
    blend = BlendedDataset([range(count) for count in samples], list(weights) if weighted else None)
    taken = len(blend) if tokens is None else int(tokens) // sequence_length
    epochs, rest = divmod(taken, len(blend))
    used = epochs * blend.samples_used + np.bincount(blend.component[:rest], minlength=len(prefixes))
    shares = np.array(weights if weighted else samples, dtype=float)
    shares /= shares.sum()
    sources = [
        BlendSource(prefix, float(share), count, int(samples_of_epoch), sequence_length)
        for prefix, share, count, samples_of_epoch in zip(prefixes, shares, samples, used, strict=True)
    ]
    return sources, len(blend)


def _train_samples(prefix: str, split: str, sequence_length: int) -> int:
    corpus = IndexedDataset(prefix)
    train = Split(corpus, "train", *split_boundaries(split, len(corpus))[:2])
    count = train.count_samples(sequence_length)
    if not count:
        raise DataError(
            f"{prefix}: its train split has {int(train.sizes.sum()):,} tokens, one sample needs "
            f"{sequence_length + 1:,}."
        )
    return count


def main() -> None:
    """Run the command."""
    parser = Parser("python -m data_tools.blend", __doc__)
    parser.add_argument("input_dir", nargs="+", metavar="WEIGHT PREFIX", help="in turn; or a folder, or one prefix")
    parser.add_argument("--sequence_length", type=above_zero, default=2048, help="tokens of a sample (default: 2048)")
    parser.add_argument("--tokens", type=amount, help="of the run, such as 10e9 (default: one epoch of the blend)")
    parser.add_argument("--split", default="949,50,1", help="as in training, of which train counts (default: 949,50,1)")
    args = parser.parse_args()
    sources, epoch = plan_blend(" ".join(args.input_dir), args.sequence_length, args.split, args.tokens)
    table = Table("corpus", "share", "samples", "samples used", "tokens used", "epochs")
    for column in table.columns:
        column.justify, column.overflow = "right", "fold"
    table.columns[0].justify = "left"
    for source in sources:
        table.add_row(
            source.prefix, f"{source.share:.1%}", f"{source.samples:,}", f"{source.used:,}", f"{source.tokens:,}",
            f"{source.epochs:.2f}",
        )  # fmt: skip
    console = Console(soft_wrap=True, markup=False)
    console.print(table, soft_wrap=False)
    taken = sum(source.used for source in sources)
    console.print(
        f"one epoch of the blend: {epoch:,} samples, {epoch * args.sequence_length:,} tokens; this run takes "
        f"{taken / epoch:.2f} epochs",
        highlight=False,
    )
    console.print(f"--input_dir {shlex.join(args.input_dir)}", highlight=False)


if __name__ == "__main__":
    run(main)
