"""What differs between two checkouts for the user of a recipe: commands, plans and the losses of rehearsals.

    python benchmarks/checkouts.py OLD                           # this checkout beside OLD: commands and plans
    python benchmarks/checkouts.py OLD --rehearse                # and every rehearsal, to the bit; half an hour
    python benchmarks/checkouts.py OLD --rehearse lora-tiny      # that one's alone

Make OLD with `git worktree add ../old COMMIT`; each checkout needs its own .venv (`make setup`). A restructuring must
change nothing here, or explain what it changes. Exit code 1 where something differs.
"""

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Plans on the cards of the recipe, on fewer and smaller ones, where FIT and its advice search, and without FIT.
PLANS = (
    {},
    {"GPUS": "2", "GPU_MEMORY_GB": "24"},
    {"GPUS": "1", "GPU_MEMORY_GB": "16"},
    {"GPUS": "4", "GPU_MEMORY_GB": "40", "FIT": "off"},
)
FORMS = ("text", "json")
SHOWN_LINES = 12


def main() -> int:
    """Print what differs. Return 1 where something does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="the checkout to compare with")
    parser.add_argument("new", type=Path, nargs="?", default=ROOT, help="the other one; default: this")
    parser.add_argument("--rehearse", nargs="*", metavar="TARGET", help="rehearse these recipes too; none named: all")
    args = parser.parse_args()
    pair = [args.old.resolve(), args.new.resolve()]
    old, new = (list_targets(checkout) for checkout in pair)
    different = [f"{target}: in one checkout only" for target in sorted(set(old) ^ set(new))]
    both = [target for target in old if target in new]
    requests = [(f"print-{target}", {}) for target in both]
    requests += [(f"plan-{target}", {**plan, "FORMAT": form}) for target in both for plan in PLANS for form in FORMS]
    with ThreadPoolExecutor(2) as pool:
        for number, found in enumerate(pool.map(lambda request: compare(*request, *pair), requests), 1):
            print(f"\r{number}/{len(requests)} commands and plans", end="", file=sys.stderr)
            different += found
    print(file=sys.stderr)
    if args.rehearse is not None:
        for target in args.rehearse or both:
            print(f"rehearse-{target}", file=sys.stderr, flush=True)
            different += compare_rehearsals(target, *pair)
    print("\n".join(different) or f"no difference in {len(requests)} commands and plans")
    return 1 if different else 0


def list_targets(checkout: Path) -> list[str]:
    """Return the targets of a checkout's recipes, in their order."""
    command = [sys.executable, "-S", "launch/environment/targets.py", "recipes"]
    listed = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True).stdout.split()
    return list(dict.fromkeys(entry.split(":")[2] for entry in listed))


def run_make(checkout: Path, target: str, variables: dict[str, str]) -> str:
    """Return the output and exit code of a target, without the checkout's own path."""
    command = ["make", "--no-print-directory", target, *(f"{key}={value}" for key, value in variables.items())]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("make: ***")]
    return "\n".join([*lines, f"exit code {done.returncode}"]).replace(str(checkout), ".")


def compare(target: str, variables: dict[str, str], old: Path, new: Path) -> list[str]:
    """Return what differs between the outputs of one target, as the lines of a diff."""
    before, after = (run_make(checkout, target, variables).splitlines() for checkout in (old, new))
    if before == after:
        return []
    changes = list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]
    shown = changes[:SHOWN_LINES] + [f"... {len(changes) - SHOWN_LINES} more"] * (len(changes) > SHOWN_LINES)
    request = " ".join([target, *(f"{key}={value}" for key, value in variables.items())])
    return [request, *(f"    {line}" for line in shown)]


def compare_rehearsals(target: str, old: Path, new: Path) -> list[str]:
    """Return the first record at which the training logs of two rehearsals differ in a loss or a gradient norm."""
    curves = []
    for checkout in (old, new):
        with tempfile.TemporaryDirectory() as folder:
            said = run_make(checkout, f"rehearse-{target}", {"OUTPUT": folder})
            log = Path(folder) / "output" / "train_log.jsonl"
            if not log.exists():
                return [f"rehearse-{target}: no {log.name} in {checkout}", *said.splitlines()[-SHOWN_LINES:]]
            records = map(json.loads, log.read_text().splitlines())
            kept = ("global_step", "loss", "grad_norm", "eval_loss")
            curves.append([{key: record[key] for key in kept if key in record} for record in records])
    if curves[0] == curves[1]:
        return []
    first = next((pair for pair in zip(*curves, strict=False) if pair[0] != pair[1]), (len(curves[0]), len(curves[1])))
    return [f"rehearse-{target}", f"    -{first[0]}", f"    +{first[1]}"]


if __name__ == "__main__":
    sys.exit(main())
