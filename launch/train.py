r"""Train a model by a method, with its flags: build, train, evaluate.

    python -m paddle.distributed.launch --gpus 0,1,2,3 \
        launch/train.py finetuning --model_name_or_path ... --do_train 1
    python launch/train.py finetuning --help

launch/run_pretrain.py, finetune_generation.py, run_dpo.py and run_reward.py start a method each, with the same flags.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not launch/

from data_tools.cli import Parser
from launch.entry import prepare_process
from launch.guard import guarded
from launch.methods.registry import METHODS


def train_method(script: str, argv: list[str]) -> None:
    """Train by a method. script: the method's name or script. argv: its flags."""
    started = time.time()
    config, process_lines = prepare_process(script, argv)  # before Paddle is imported

    from launch.training.run import Run

    run = Run(config, started)
    trainer = run.build(process_lines)
    if run.training.training_args.do_train and not run.train(trainer):
        return
    run.finish(trainer)


def start(script: str) -> int:
    """Train by a method with the flags of the command line. Returns the exit code."""
    return guarded(partial(train_method, script), sys.argv[1:])


def main(argv: list[str]) -> None:
    """Train by the method that the first word names."""
    parser = Parser("python launch/train.py", __doc__)
    parser.add_argument("method", choices=[method.name for method in METHODS], help="the method")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="its flags, which METHOD --help lists")
    args = parser.parse_args(argv)
    train_method(args.method, args.flags)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
