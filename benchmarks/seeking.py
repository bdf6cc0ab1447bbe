"""How long a resumed run takes to its first batch, beside a loader that reads again what was consumed.

    python benchmarks/seeking.py [--consumed 10000 100000 1000000] [--output FILE]

A corpus of 1.25 million samples of 32 tokens, batches of 8. "ours": from making the order to the first batch at the
position. "read again": paddle.io.DataLoader over the same samples with paddle.io.DistributedBatchSampler, whose batches
are thrown away until the position, as paddlenlp's Trainer does on resume (trainer.py, _inner_training_loop); it is
measured up to --largest-read samples, as it only grows.
"""

import argparse
import datetime
import json
import platform
import shlex
import sys
import tempfile
import time
from itertools import islice
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

BATCH, LENGTH, SAMPLES, DOCUMENT = 8, 32, 1_250_000, 4_000


def open_dataset(folder: Path) -> SampleDataset:
    """Write a corpus and open its samples."""
    prefix = folder / "corpus"
    random = np.random.RandomState(0)
    with IndexedWriter(prefix, 32_000) as writer:
        while writer.tokens < SAMPLES * LENGTH + 1:
            sizes = np.full(100, DOCUMENT, dtype=np.int32)
            writer.add_documents(random.randint(0, 32_000, sizes.sum(), dtype=np.int32), sizes)
    corpus = IndexedDataset(prefix)
    return SampleDataset(Split(corpus, "train", 0, len(corpus)), LENGTH, 0, folder / "cache")


def seconds_to_seek(dataset, collate, consumed: int) -> float:
    """Return the seconds until the first batch when the stream seeks."""
    from paddle.io import DataLoader

    from launch.training.batches import SampleStream

    start = time.perf_counter()
    step = consumed // BATCH
    stream = SampleStream(len(dataset), 0, BATCH, 1, 0, 1, steps=step + 1, first_step=step, start=consumed)
    next(iter(DataLoader(dataset, batch_sampler=stream, collate_fn=collate)))
    return time.perf_counter() - start


def seconds_to_read_again(dataset, collate, consumed: int) -> float:
    """Return the seconds until the first batch when all earlier ones are read."""
    from paddle.io import DataLoader, DistributedBatchSampler

    start = time.perf_counter()
    sampler = DistributedBatchSampler(dataset, BATCH, num_replicas=1, rank=0, shuffle=True)
    for _ in islice(DataLoader(dataset, batch_sampler=sampler, collate_fn=collate), consumed // BATCH + 1):
        pass
    return time.perf_counter() - start


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--consumed", nargs="+", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--largest-read", type=int, default=100_000)
    parser.add_argument("--output", type=Path, help="also write everything measured to this JSON file")
    args = parser.parse_args(argv)

    from launch.reporting.quiet import import_paddle_quietly

    import_paddle_quietly()
    from launch.training.pretrain import Collator

    with tempfile.TemporaryDirectory() as folder:
        dataset, collate = open_dataset(Path(folder)), Collator(LENGTH)
        rows = []
        for consumed in args.consumed:
            row = {"consumed": consumed, "ours": seconds_to_seek(dataset, collate, consumed)}
            if consumed <= args.largest_read:
                row["read_again"] = seconds_to_read_again(dataset, collate, consumed)
            rows.append(row)
    report = {
        "command": shlex.join(["python", "benchmarks/seeking.py", *argv]),
        "date": datetime.date.today().isoformat(),
        "machine": machine_facts(1),
        "versions": {"Python": platform.python_version(), "numpy": np.__version__},
        "seconds": rows,
    }
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    shown = Table("samples consumed", "ours, s", "read again, s", "ratio", title="To the first batch")
    for row in rows:
        again = row.get("read_again")
        upstream = [f"{again:,.2f}", f"{again / row['ours']:,.0f}"] if again else ["-", "-"]
        shown.add_row(f"{row['consumed']:,}", f"{row['ours']:.3f}", *upstream)
    Console().print(shown)


if __name__ == "__main__":
    main(sys.argv[1:])
