"""Store the curves of recipes' rehearsals anew, to be committed.

    python -m tests.golden pretrain-tiny pretrain-llama7b --reason "the schedule's warm-up begins at 1, not at 0"
    python -m tests.golden --reason "new recipes"         # those that have none yet
    python -m tests.golden --check                        # rehearse all and compare; nothing is stored

A curve that has changed is a rehearsal that computes something else than before: first find out what, then say so.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.golden.curves import Curve, golden_file, read_golden, write_golden
from tests.recipes.rehearsing import recipes_by_target, rehearse_well


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    changed = False
    for target in arguments.target:
        with tempfile.TemporaryDirectory() as directory:
            curve = Curve.of_run(rehearse_well(target, Path(directory)).output)
        change = read_golden(target).differences(curve) if golden_file(target).exists() else "new"
        changed |= bool(change)
        if not arguments.check:
            write_golden(target, curve, arguments.reason)
        print(f"{target}: {len(curve.losses)} steps; {change or 'as before'}", flush=True)
    return int(arguments.check and changed)


def parse(argv: list[str]) -> argparse.Namespace:
    recipes = sorted(recipes_by_target())
    parser = argparse.ArgumentParser(
        "python -m tests.golden",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("target", nargs="*", metavar="TARGET", help=f"of: {', '.join(recipes)}")
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 where a curve has changed")
    parser.add_argument("--reason", default="", help="why the stored curve is no longer right; kept in the file")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.target) - set(recipes):
        parser.error(f"no recipe {', '.join(sorted(unknown))}; there are: {', '.join(recipes)}")
    if not (arguments.check or arguments.reason.strip()):
        parser.error("--reason is empty: say why the stored curve is no longer right")
    wanted = [target for target in recipes if arguments.check or not golden_file(target).exists()]
    arguments.target = arguments.target or wanted
    return arguments


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
