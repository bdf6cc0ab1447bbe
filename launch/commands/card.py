"""Print the card of a run: what a README.md of its model says about the training.

    python launch/commands/card.py OUTPUT          make card OUTPUT=FOLDER

Command, data with hashes, losses, memory against the plan, hardware, hours, and the results of make evaluate.
`make export` writes it beside the weights, with how to load them; `make push` sends both to a hub.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser
from launch.guard import guarded
from launch.hubs.model_card import trained


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = Parser("python launch/commands/card.py", __doc__)
    parser.add_argument("output", type=Path, help="output directory of a run")
    parser.add_argument("--evaluation", type=Path, help="results; default: evaluations/NAME OF OUTPUT.json, if there")
    args = parser.parse_args(argv)
    print(trained(args.output, args.output.resolve().name, args.evaluation), end="")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
