"""Reading token files in training: opening, building and finding the sample index, reading batches; by size of corpus.

    python benchmarks/loader.py [--millions 10 100] [--length 2048] [--output FILE]

The corpora are made up: documents of 50 to 1350 tokens, 700 on average, ids below 32,000. "index, built" is the time of
the first run on a corpus: its content key, the shuffled order of documents, where each sample begins, and writing that;
"index, found" is that of every other rank and later run. A batch is 8 samples in random order, as training reads them.
"""

import argparse
import datetime
import json
import platform
import shlex
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cpu_training import machine_facts
from data_tools.formats.tokens.indexed import IndexedDataset, IndexedWriter
from data_tools.formats.tokens.samples import SampleDataset, Split

BATCH, BATCHES = 8, 200
DOCUMENTS_AT_ONCE = 10_000
ROWS = {
    "open": "open the corpus, check its index",
    "built": "index, built",
    "found": "index, found",
    "batch": "a batch, on average",
}


def write_corpus(prefix: Path, tokens: int) -> None:
    """Write a corpus of random tokens."""
    random = np.random.RandomState(0)
    with IndexedWriter(prefix, 32_000) as writer:
        while writer.tokens < tokens:
            sizes = random.randint(50, 1351, DOCUMENTS_AT_ONCE).astype(np.int32)
            writer.add_documents(random.randint(0, 32_000, sizes.sum(), dtype=np.int32), sizes)


def measure(folder: Path, tokens: int, length: int) -> dict:
    """Return the seconds of each row, and the corpus' numbers."""
    prefix = folder / f"corpus{tokens}"
    write_corpus(prefix, tokens)
    seconds = {}
    corpus = timed(seconds, "open", lambda: IndexedDataset(prefix))
    split = Split(corpus, "train", 0, len(corpus))
    timed(seconds, "built", lambda: SampleDataset(split, length, 0, folder / "cache"))
    again = Split(IndexedDataset(prefix), "train", 0, len(corpus))
    dataset = timed(seconds, "found", lambda: SampleDataset(again, length, 0, folder / "cache"))
    order = np.random.RandomState(0).permutation(len(dataset))[: BATCH * BATCHES]
    timed(seconds, "batch", lambda: read(dataset, order))
    seconds["batch"] /= BATCHES
    index = next((folder / "cache").iterdir()).stat().st_size
    for file in [*folder.glob(f"{prefix.name}*"), *(folder / "cache").iterdir()]:
        file.unlink()
    return {
        "tokens": corpus.tokens.size, "documents": len(corpus), "samples": len(dataset), "index_bytes": index,
        "seconds": seconds,
    }  # fmt: skip


def timed(seconds: dict, name: str, function):
    """Call a function and store its seconds by name."""
    start = time.perf_counter()
    result = function()
    seconds[name] = time.perf_counter() - start
    return result


def read(dataset: SampleDataset, order: np.ndarray) -> None:
    """Read all samples in batches as the trainer's collator makes them."""
    length = dataset[0]["labels"].size
    for start in range(0, order.size, BATCH):
        input_ids, labels = np.empty((2, BATCH, length), dtype=np.int64)
        for row, i in enumerate(order[start : start + BATCH]):
            dataset[i].write(input_ids[row], labels[row])


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--millions", nargs="+", type=int, default=[10, 100], help="tokens of each corpus")
    parser.add_argument("--length", type=int, default=2048, help="tokens of a sample")
    parser.add_argument("--output", type=Path, help="also write everything measured to this JSON file")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        corpora = [measure(Path(folder), millions * 1_000_000, args.length) for millions in args.millions]
    report = {
        "command": shlex.join(["python", "benchmarks/loader.py", *argv]),
        "date": datetime.date.today().isoformat(),
        "machine": machine_facts(1),
        "versions": {"Python": platform.python_version(), "numpy": np.__version__},
        "length": args.length,
        "corpora": corpora,
    }
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    shown = Table("", *(f"{corpus['tokens'] / 1e6:,.0f} M tokens" for corpus in corpora), title="Milliseconds")
    for row, name in ROWS.items():
        shown.add_row(name, *(f"{1000 * corpus['seconds'][row]:,.2f}" for corpus in corpora))
    shown.add_row("documents", *(f"{corpus['documents']:,}" for corpus in corpora))
    shown.add_row("index, MB", *(f"{corpus['index_bytes'] / 1e6:.2f}" for corpus in corpora))
    Console().print(shown)


if __name__ == "__main__":
    main(sys.argv[1:])
