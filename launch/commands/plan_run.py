"""The memory and time that a run needs, before it is started: no Paddle, no card, in under a second.

    make plan-pretrain-llama7b ARGS="--recompute 0" [GPU_MEMORY_GB=40] \\
        [FORMAT=json]
    python launch/commands/plan_run.py --gpus 8 --gpu_memory_gb 80 \\
        launch/run_pretrain.py --model_name_or_path llama-7b ...
    python launch/commands/plan_run.py --gpus 2 --gpu_memory_gb 24 \\
        path/to/config.json --lora 1 --fp16 1 --fp16_opt_level O2

What comes after the shared module, or after the model, are the shared module's flags. What is counted, and how good
the estimates are: docs/plan.md.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser, above_zero
from data_tools.language import localized
from launch.config.recipe_file import SCRIPTS
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.guard import guarded
from launch.plan.hardware import CARDS, Card, card_named, card_of_memory
from launch.plan.job import Job
from launch.plan.plan_report import FORMATS, TEXT, report
from launch.preflight.flags import check_flags
from launch.preflight.memory import lines_below_a_plan

PRETRAIN, FINETUNE = SCRIPTS


def main(argv: list[str]) -> None:
    args = _parse(argv)
    run = _run_of(args.what, args.flags, args.gpus)
    faults = [finding for finding in check_flags(run.script, run.words) if not finding.ok]
    if faults:
        raise UserError("\n".join(f"{one.subject}: {one.found}; {one.fix}" for one in faults))
    card = None if run.on_cpu else _card(args)
    print(report(Job.from_run(run, card), card, args.format))
    if args.format == TEXT:
        for line in lines_below_a_plan(run, card):
            print(localized(line))


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/plan_run.py", __doc__)
    parser.add_argument("--gpus", type=above_zero, default=1, help="ranks, one a card; on a CPU processes")
    parser.add_argument("--gpu_memory_gb", type=above_zero, default=80, help="memory of a card, as in its name")
    parser.add_argument("--card", help=f"the kind of card: {', '.join(CARDS)}")
    parser.add_argument("--format", choices=FORMATS, default=TEXT, help="how the plan is printed")
    parser.add_argument("what", help="a shared module, or a model: name, directory, config.json")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="flags of the shared module")
    return parser.parse_args(argv)


def _card(args: argparse.Namespace) -> Card:
    return card_named(args.card) if args.card else card_of_memory(args.gpu_memory_gb)


def _run_of(what: str, words: list[str], processes: int) -> RunConfig:
    """A shared module with its flags; of a model alone pretraining, or fine-tuning where a flag is one of its
    adapters."""
    run, _ = RunConfig.from_words(what, words, processes)
    if Path(what).stem in SCRIPTS:
        return run
    finetunes = {"lora", "prefix_tuning", "dataset_name_or_path", "max_length"} & run.words.keys()
    script = FINETUNE if finetunes else PRETRAIN
    return replace(run, script=script, words=run.words | {"model_name_or_path": [what]})


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
