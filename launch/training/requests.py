"""What saves or ends a run at the end of a step: a signal, the time limit, the file save-now. All ranks do the same."""

import os
import shlex
import signal
import sys
import time
from pathlib import Path

import numpy as np
import paddle
import psutil
from paddlenlp.trainer import TrainerCallback

from launch.checkpoint.ranks import world_size
from launch.processes.command import COMMAND, DECIDE_THE_START

SAVE_NOW = "save-now"
# What may be asked for, in the order of the numbers that the ranks exchange.
REQUESTS = ("SIGINT", "SIGTERM", "SIGHUP", "time", "failed save", "save")


class Requests(TrainerCallback):
    """received: numbers of the signals that this process got, filled in elsewhere. failed: whether a save in the
    background went wrong in this rank. stopped_by: why the run has ended before its last step, None as long as not."""

    def __init__(self, max_run_minutes: float, failed=lambda: False):
        self.received: list[int] = []
        self.failed = failed
        self.max_run_minutes = max_run_minutes
        self.stopped_by: str | None = None

    def on_step_end(self, args, state, control, **kwargs):
        asked = agree(self._asked_here(args))
        if "save" in asked and args.process_index == 0:
            (Path(args.output_dir) / SAVE_NOW).unlink(missing_ok=True)
        if asked:
            control.should_save = True
        reasons = [reason for reason in asked if reason != "save"]
        if reasons and state.global_step < args.max_steps:
            self.stopped_by = f"--max_run_minutes {self.max_run_minutes:g}" if "time" in reasons else reasons[0]
            control.should_training_stop = True

    def _asked_here(self, args) -> set[str]:
        asked = {signal.Signals(number).name for number in self.received}
        if self.failed():
            asked.add("failed save")
        if args.process_index == 0:
            minutes = (time.time() - psutil.Process().create_time()) / 60
            if self.max_run_minutes and minutes >= self.max_run_minutes:
                asked.add("time")
            if (Path(args.output_dir) / SAVE_NOW).exists():
                asked.add("save")
        return asked


def agree(asked: set[str]) -> list[str]:
    """What any rank asks for, on all ranks, in the order of REQUESTS. Called by all of them together."""
    flags = np.array([request in asked for request in REQUESTS], dtype="int32")
    if world_size() > 1:
        tensor = paddle.to_tensor(flags)
        paddle.distributed.all_reduce(tensor, op=paddle.distributed.ReduceOp.MAX)
        flags = tensor.numpy()
    return [request for request, flag in zip(REQUESTS, flags, strict=True) if flag]


def command_to_continue() -> str:
    """The command that started this run, without what would have it start anew or elsewhere."""
    words = shlex.split(os.environ.get(COMMAND, "")) or [sys.executable, *sys.argv]
    kept, skips = [], False
    for word in words:
        if word.startswith("--"):
            skips = word.partition("=")[0] in DECIDE_THE_START
        if not skips:
            kept.append(word)
    return shlex.join(kept)
