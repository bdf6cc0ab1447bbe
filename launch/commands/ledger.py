"""Which samples a run has consumed, and the proof that each was read once an epoch.

    python launch/commands/ledger.py OUTPUT          make ledger OUTPUT=FOLDER

OUTPUT: the output directory of a run, whose newest checkpoint is taken, or one of its checkpoints. The order of each
epoch is made again from the data's identity and the seed, and what was read of it is counted; the log of the run must
tell the same positions. Exit code 1 where something was read twice or left out.
"""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser
from data_tools.terminal import marks
from launch.checkpoint.data_ledger import Epoch, Ledger, Range, epochs, faults
from launch.checkpoint.manifest import RUN, checkpoints, first_fault, is_ours
from launch.errors import UserError
from launch.guard import guarded
from launch.reporting.records import TRAIN_LOG, read_train_log


def main(argv: list[str]) -> int:
    parser = Parser("python launch/commands/ledger.py", __doc__)
    parser.add_argument("output", metavar="OUTPUT", type=Path)
    checkpoint = find_checkpoint(parser.parse_args(argv).output)
    ledger = Ledger.from_json(json.loads((checkpoint / RUN).read_text(encoding="utf-8"))["ledger"])
    print(f"{checkpoint}: step {ledger.last.last_step:,}, {ledger.samples:,} samples, {ledger.tokens:,} tokens")
    for number, data in enumerate(ledger.data):
        print(f"\ndata {number + 1}: {describe(data)}")
        for one in ledger.ranges:
            if one.data == number and one.start < one.stop:
                print(f"  {describe_range(one)}")
    print("\nproof")
    good, bad = marks(sys.stdout)
    read = list(epochs(ledger))
    for one in read:
        print(f"  {good if one.ok else bad} {describe_epoch(one)}")
    wrong = [*faults(ledger), *log_faults(ledger, checkpoint.parent)]
    for fault in wrong:
        print(f"  {bad} {fault}")
    if wrong or not all(one.ok for one in read):
        return 1
    print(f"  {good} every range begins where the one before it ended, and the log tells the same")
    return 0


def find_checkpoint(path: Path) -> Path:
    """Raises UserError where there is none, or it is not whole (hashes are left to the run that continues it)."""
    found = [path] if is_ours(path) else [one for one in checkpoints(path) if is_ours(one)]
    if not found:
        raise UserError(f"{path}: no checkpoint, and no directory with one; expected checkpoint-N with manifest.json.")
    fault = first_fault(found[0], hashes=False)
    if fault:
        raise UserError(f"{fault}.")
    return found[0]


def describe(data: dict) -> str:
    """A dataset's identity, hashes shortened."""
    if "parts" in data:
        weights = " : ".join(map(str, data["weights"]))
        parts = "; ".join(describe(part) for part in data["parts"])
        return f"a blend {weights} of {parts}; {data['samples']:,} samples an epoch, seed {data['order_seed']}"
    values = {key: value[:12] if isinstance(value, str) else value for key, value in data.items()}
    return ", ".join(f"{key} {value}" for key, value in values.items())


def describe_range(one: Range) -> str:
    return (
        f"steps {one.first_step + 1:,} to {one.last_step:,}: positions {one.start:,} to {one.stop:,}, {one.tokens:,} "
        f"tokens; {one.global_batch} samples a step on {one.data_ranks} data rank{'s' if one.data_ranks > 1 else ''}"
    )


def describe_epoch(one: Epoch) -> str:
    often = "each once" if one.most == 1 else f"some {one.most} times"
    return f"data {one.data + 1}, epoch {one.epoch + 1}: {one.read:,} of {one.samples:,} samples, {often}"


def log_faults(ledger: Ledger, output: Path) -> list[str]:
    """Where the log of the run tells another number of samples than the ledger."""
    if not (output / TRAIN_LOG).exists():
        return []
    found = []
    for record in read_train_log(output):
        step, before = record["global_step"], 0
        for one in ledger.ranges:
            if one.first_step < step <= one.last_step and "consumed_samples" in record:
                expected = before + min((step - one.first_step) * one.global_batch, one.stop - one.start)
                if record["consumed_samples"] != expected:
                    found.append(f"{TRAIN_LOG}, step {step}: {record['consumed_samples']:,} samples, not {expected:,}")
            before += one.stop - one.start
    return found


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
