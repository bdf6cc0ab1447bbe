"""Certify the cards of this machine: numbered checks of all that only a card runs, with a report to send back.

    make certify
    make certify ARGS="--only flash-attention,card-against-cpu"
    make certify ARGS=--pretend

Nothing is downloaded: models have random weights, data are generated. Each check runs in a process of its own with a
time limit. After each, build/certify/certify.json and certify.md are written. Ctrl-C keeps them; the same command goes
on. docs/certify.md says what it costs and what each check means.

Exit code 0: no check failed; 1: at least one did; 130: interrupted.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not this folder

from data_tools.cli import EXIT_INTERRUPTED, GOES_ON, Parser
from data_tools.formats.plural import plural
from data_tools.language import localized
from launch.certify.bench import FAIL, MATERIALS, OPEN, PASS, make_materials, visible_devices
from launch.certify.checks import Check, all_checks
from launch.certify.runner import Session, duration, run_checks
from launch.devices.cards import driver, list_cards
from launch.environment.doctor_checks import check_cpu
from launch.errors import UserError
from launch.guard import guarded
from launch.preflight.gpus import describe
from launch.processes.orphans import adopt_orphans, end_with_make
from launch.reporting.records import git_revision, package_versions

PRETENDED_CARDS = 2


def main(argv: list[str]) -> int:
    end_with_make()
    adopt_orphans()  # a launcher lies in a session of its own and outlives the check that started it
    args = _parse(argv)
    checks = all_checks()
    chosen = choose(args.only, checks)
    cards = PRETENDED_CARDS if args.pretend else len(visible_devices())
    if not cards:
        raise UserError(
            "no card is here, or none is visible (nvidia-smi, CUDA_VISIBLE_DEVICES). Without cards: make certify "
            "ARGS=--pretend shows what would be checked, on the CPU."
        )
    of = describe_machine(args.pretend)
    total = sum(check.seconds_for(args.pretend, cards) for check in chosen)
    print(f"certifying {of['cards_text']}: {plural(len(chosen), 'check')}, {duration(total)}", flush=True)
    if args.pretend:  # once, for all checks, which are forks of this process
        from launch.rehearsal.rehearse import import_paddle

        import_paddle({}, cards)
    session = Session(args.output.absolute(), of, cards, args.pretend, make_materials(MATERIALS))
    results, interrupted = run_checks(session, checks, chosen)
    print(f"\n{summary(results)}\nto read: {session.page}\nto send: {session.file} and {session.page.name}")
    if interrupted:
        print(localized(f"interrupted: {GOES_ON}"), file=sys.stderr)
        return EXIT_INTERRUPTED
    return int(any(result.mark == FAIL for result in results.values()))


def choose(only: str, checks: Sequence[Check]) -> list[Check]:
    """The checks that --only names by name or number; all without it. Raises UserError for an unknown one."""
    if not only:
        return list(checks)
    known = {check.name: check for check in checks} | {str(n): check for n, check in enumerate(checks, start=1)}
    words = [word.strip() for word in only.split(",") if word.strip()]
    unknown = [word for word in words if word not in known]
    if unknown or not words:
        names = ", ".join(f"{number} {check.name}" for number, check in enumerate(checks, start=1))
        raise UserError(f"--only: found {unknown[0] if unknown else only!r}, allowed: {names}.")
    return [check for check in checks if check in [known[word] for word in words]]


def describe_machine(pretend: bool) -> dict:
    """What results belong to, as JSON has it: they are kept only for the same."""
    found, cards = driver(), list_cards()
    return {
        "pretended": pretend,
        "cards_text": f"a pretended run on {PRETENDED_CARDS} processes" if pretend else describe(cards),
        "cards": [[card.name, card.memory_bytes, list(card.compute_capability)] for card in cards],
        "driver": f"{found.version}, CUDA {found.cuda[0]}.{found.cuda[1]}" if found else None,
        "processor": check_cpu().found,
        "versions": package_versions(),
        "git_revision": git_revision(),
    }


def summary(results: dict) -> str:
    counts = {mark: sum(result.mark == mark for result in results.values()) for mark in (PASS, FAIL, OPEN)}
    words = {PASS: "as expected", FAIL: "not as expected", OPEN: "not shown"}
    return ", ".join(f"{count} {mark} {words[mark]}" for mark, count in counts.items())


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/certify.py", __doc__)
    parser.add_argument("--only", default="", metavar="CHECKS", help="names or numbers with commas: these, done or not")
    parser.add_argument("--pretend", action="store_true", help="CPU processes in place of cards: certifies nothing")
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "build" / "certify",
        help="folder of the report; default build/certify",
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:], GOES_ON))
