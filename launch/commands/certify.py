"""Certify the cards of this machine: numbered checks of everything that needs a card, and a report to send back.

    make certify
    make certify QUICK=1
    make certify FULL=1
    make certify ARGS="--only flash-attention,card-against-cpu"
    make certify ARGS=--pretend

Nothing is downloaded: models have random weights and data are generated. Each check is a test of pytest with the mark
`card`, in its own process with a time limit; checks run side by side, each on cards of its own. After each one
build/certify/certify.json and certify.md are written. After Ctrl-C the same command continues. docs/certify.md says how
long it takes and what each check means. The JSON file calibrates plans: make plan-X CALIBRATION=FILE.

Exit code 0: no check failed; 1: at least one did; 3: there is no card; 130: interrupted.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not this folder

from data_tools.cli import EXIT_INTERRUPTED, GOES_ON, Parser
from data_tools.formats.plural import plural
from data_tools.language import localized
from launch.certify.bench import MATERIALS, make_materials
from launch.certify.certificate import (
    PRETENDED_CARDS,
    CertificatePlugin,
    all_checks,
    choose,
    describe_machine,
    duration,
    run,
    total_seconds,
)
from launch.certify.results import FAIL, summary
from launch.devices.cards import visible_devices
from launch.errors import UserError
from launch.guard import guarded
from launch.processes.orphans import adopt_orphans, end_with_make

NO_CARD = 3


def main(argv: list[str]) -> int:
    """Run the command."""
    end_with_make()
    adopt_orphans()  # a launcher has its own session and outlives the check that started it
    args = _parse(argv)
    checks = all_checks()
    chosen = choose(args.only, checks, args.quick, args.full)
    cards = PRETENDED_CARDS if args.pretend else len(visible_devices())
    if not cards:
        error = UserError(
            "no card is here, or none is visible (nvidia-smi, CUDA_VISIBLE_DEVICES). Without cards: make certify "
            "ARGS=--pretend shows what would be checked, on the CPU."
        )
        print(localized(f"error: {error}"), file=sys.stderr)
        return NO_CARD
    of = describe_machine(args.pretend)
    total = total_seconds(chosen, args.pretend, cards)
    print(f"certifying {of['cards_text']}: {plural(len(chosen), 'check')}, {duration(total)}", flush=True)
    if args.pretend:  # once: all checks are forks of this process
        from launch.rehearsal.rehearse import import_paddle

        import_paddle({}, cards)
    report = CertificatePlugin(
        args.output.absolute(), of, cards, make_materials(MATERIALS), checks, chosen, bool(args.only)
    )
    run(report)
    print(f"\n{summary(report.results)}\nto read: {report.page}\nto send: {report.file} and {report.page.name}")
    if report.interrupted:
        print(localized(f"interrupted: {GOES_ON}"), file=sys.stderr)
        return EXIT_INTERRUPTED
    return int(any(result.mark == FAIL for result in report.results.values()))


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/certify.py", __doc__)
    parser.add_argument("--only", default="", metavar="CHECKS", help="run only these, by name or number, with commas")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument(
        "--quick", action="store_true", help="kernels, steps that calibrate plans, the server: 6 minutes"
    )
    extent.add_argument("--full", action="store_true", help="every recipe at full size, not one of each kind")
    parser.add_argument("--pretend", action="store_true", help="use CPU processes instead of cards; certifies nothing")
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "build" / "certify",
        help="folder of the report; default build/certify",
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:], GOES_ON))
