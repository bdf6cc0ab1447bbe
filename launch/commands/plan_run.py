r"""Plan the memory and time of a run before it is started: in under a second, without Paddle and without a card.

    make plan-pretrain-llama7b ARGS="--recompute 0" [GPU_MEMORY_GB=40] \
        [FORMAT=json] [MTBF_HOURS=20000] [CALIBRATION=certify.json]
    python launch/commands/plan_run.py --gpus 8 --gpu_memory_gb 80 \
        launch/run_pretrain.py --model_name_or_path llama-7b ...
    python launch/commands/plan_run.py --gpus 2 --gpu_memory_gb 24 \
        path/to/config.json --lora 1 --fp16 1 --fp16_opt_level O2

The arguments after the method's script, or after the model, are flags of the method. docs/plan.md says what is
counted and how accurate it is. Exit code: 1 where the run does not fit.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser, above_zero, cards, nodes
from data_tools.language import localized
from launch.config.run_config import Nodes, RunConfig
from launch.errors import UserError
from launch.guard import guarded
from launch.methods.finetuning import FINETUNING
from launch.methods.pretraining import PRETRAINING
from launch.methods.registry import find_method
from launch.plan.calibration import calibrated
from launch.plan.goodput import MTBF_HOURS
from launch.plan.hardware import CARDS, card_named, card_of_memory
from launch.plan.interconnect import NETWORK_HELP
from launch.plan.job import Job
from launch.plan.plan_report import FORMATS, TEXT, report
from launch.preflight.flag_check import check_flags
from launch.preflight.proposals import exit_code_of_plan, lines_below_a_plan


def main(argv: list[str]) -> int:
    """Run the command."""
    args = _parse(argv)
    nodes = Nodes(args.nnodes)
    run = replace(_run_of(args.what, args.flags, nodes.count * args.gpus), nodes=nodes, network=args.network)
    faults = [finding for finding in check_flags(run.script, run.explicit) if not finding.ok]
    if faults:
        raise UserError("\n".join(f"{fault.subject}: {fault.found}; {fault.fix}" for fault in faults))
    card = None
    if not run.on_cpu:
        card = card_named(args.card) if args.card else card_of_memory(args.gpu_memory_gb)
    if card and args.calibration:
        card, line = calibrated(card, args.calibration)
        print(localized(line), file=sys.stderr)
    print(report(Job.from_run(run, card), card, args.format, mtbf_hours=args.mtbf_hours))
    if args.format == TEXT:
        for line in lines_below_a_plan(run, card):
            print(localized(line))
    return exit_code_of_plan(run, card)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/plan_run.py", __doc__)
    parser.add_argument("--gpus", type=cards, default=1, help="number of cards of a node; on a CPU: of processes")
    parser.add_argument("--nnodes", type=nodes, default=1, help="number of nodes; default %(default)s")
    parser.add_argument("--network", default="", metavar="NETWORK", help=NETWORK_HELP)
    parser.add_argument(
        "--gpu_memory_gb",
        type=above_zero,
        default=80,
        help="memory of a card in GB, as in its name; default %(default)s",
    )
    parser.add_argument("--card", help=f"kind of card: {', '.join(CARDS)}")
    parser.add_argument(
        "--mtbf_hours",
        type=above_zero,
        default=MTBF_HOURS,
        help="mean hours between two failures of a card; default %(default)s",
    )
    parser.add_argument("--calibration", metavar="FILE", help="certify.json of make certify on such a card")
    parser.add_argument("--format", choices=FORMATS, default=TEXT, help="form of the plan; default %(default)s")
    parser.add_argument("what", help="a method's script, or a model: name, directory, config.json")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="flags of the method")
    return parser.parse_args(argv)


def _run_of(what: str, words: list[str], processes: int) -> RunConfig:
    """Return the run of a method with its flags. A model alone is fine-tuned if a flag says so, else pretrained."""
    run, _ = RunConfig.from_arguments(what, words, processes)
    if find_method(what):
        return run
    finetunes = {"lora", "prefix_tuning", "dataset_name_or_path", "max_length"} & run.explicit.keys()
    script = (FINETUNING if finetunes else PRETRAINING).name
    return replace(run, script=script, explicit=run.explicit | {"model_name_or_path": [what]})


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
