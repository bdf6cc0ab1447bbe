"""Print which samples a run has consumed, and prove that each was read once an epoch.

    python launch/commands/ledger.py OUTPUT          make ledger OUTPUT=FOLDER

OUTPUT is one checkpoint, or the output directory of a run, whose newest checkpoint is used. The order of each epoch is
computed again from the identity of the data and the seed, and the samples that were read are counted. The log of the
run must agree. Exit code 1 if a sample was read twice or left out.
"""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser
from data_tools.formats.plural import plural
from data_tools.terminal import marks
from launch.checkpoint.data_ledger import Ledger, Range, described, epochs, faults
from launch.checkpoint.manifest import RUN, checkpoints, first_fault, is_ours
from launch.errors import UserError
from launch.guard import guarded
from launch.reporting.records import TRAIN_LOG, read_train_log


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = Parser("python launch/commands/ledger.py", __doc__)
    parser.add_argument("output", metavar="OUTPUT", type=Path, help="output directory of a run, or a checkpoint")
    checkpoint = find_checkpoint(parser.parse_args(argv).output)
    ledger = Ledger.from_json(json.loads((checkpoint / RUN).read_text(encoding="utf-8"))["ledger"])
    print(f"{checkpoint}: step {ledger.last.last_step:,}, {ledger.samples:,} samples, {ledger.tokens:,} tokens")
    for number, data in enumerate(ledger.data):
        print(f"\ndata {number + 1}: {described(data)}")
        for span in ledger.ranges:
            if span.data == number and span.start < span.stop:
                print(f"  {describe_range(span)}")
    print("\nproof")
    good, bad = marks(sys.stdout)
    read = list(epochs(ledger))
    for epoch in read:
        often = "each once" if epoch.most == 1 else f"some {epoch.most} times"
        samples = f"{epoch.read:,} of {epoch.samples:,} samples"
        print(f"  {good if epoch.ok else bad} data {epoch.data + 1}, epoch {epoch.epoch + 1}: {samples}, {often}")
    wrong = [*faults(ledger), *log_faults(ledger, checkpoint.parent)]
    for fault in wrong:
        print(f"  {bad} {fault}")
    if wrong or not all(epoch.ok for epoch in read):
        return 1
    print(f"  {good} every range begins where the one before it ended, and the log tells the same")
    return 0


def find_checkpoint(path: Path) -> Path:
    """Return the checkpoint at a path.

    Hashes are checked by the run that continues it.

    Raises:
        UserError: If there is none or it is incomplete.
    """
    found = [path] if is_ours(path) else [checkpoint for checkpoint in checkpoints(path) if is_ours(checkpoint)]
    if not found:
        raise UserError(f"{path}: no checkpoint, and no directory with one; expected checkpoint-N with manifest.json.")
    fault = first_fault(found[0], hashes=False)
    if fault:
        raise UserError(f"{fault}.")
    return found[0]


def describe_range(span: Range) -> str:
    """Return a range of steps as text."""
    return (
        f"steps {span.first_step + 1:,} to {span.last_step:,}: positions {span.start:,} to {span.stop:,}, "
        f"{span.tokens:,} tokens; {span.global_batch} samples a step on {plural(span.data_ranks, 'data rank')}"
    )


def log_faults(ledger: Ledger, output: Path) -> list[str]:
    """Return the steps at which the log of the run and the ledger disagree on the number of samples."""
    if not (output / TRAIN_LOG).exists():
        return []
    found, earlier = [], 0
    for record in read_train_log(output):
        step, before = record["global_step"], 0
        consumed = record.get("consumed_samples", earlier)
        for span in ledger.ranges:
            if span.first_step < step <= span.last_step and "consumed_samples" in record:
                expected = before + min((step - span.first_step) * span.global_batch, span.stop - span.start)
                if span.uneven:  # none fewer than before, and all in the end
                    expected = before + span.stop - span.start
                    expected = expected if step == span.last_step else min(max(consumed, earlier), expected)
                if consumed != expected:
                    found.append(f"{TRAIN_LOG}, step {step}: {consumed:,} samples, not {expected:,}")
            before += span.stop - span.start
        earlier = consumed
    return found


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
