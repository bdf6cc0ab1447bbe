"""What the ranks of the kill harness do: train, and perhaps die on the way."""

import os
import pkgutil
import random
import resource
import signal
import threading
import time
from collections import Counter


def train(script: str, argv: list[str], moment: list | None = None) -> None:
    """Train by a method.

    moment: [step, rank, seconds, micro batch]: that rank kills itself so long after the beginning of that micro batch
    of that step, 1 the first, and the first where there are three numbers; or [class, method, call]: every rank at the
    beginning of so many calls of a method.
    """
    import paddle

    from launch.train import train_method
    from launch.training.trainer import Trainer

    if moment is not None and isinstance(moment[0], str):
        _die_in(*moment)
    elif moment is not None:
        step, rank, seconds, micro_batch = (*moment, 1)[:4]
        upstream, begun = Trainer.training_step, Counter()

        def training_step(trainer, *given):
            begun[trainer.state.global_step + 1] += 1
            if begun[step] == micro_batch and paddle.distributed.get_rank() == rank:
                threading.Thread(target=_die, args=(seconds,), daemon=True).start()
            return upstream(trainer, *given)

        Trainer.training_step = training_step
    train_method(script, argv)


def _die_in(owner: str, method: str, call: int) -> None:
    kind, calls = pkgutil.resolve_name(owner), Counter()
    upstream = getattr(kind, method)

    def counted(*given, **named):
        calls[method] += 1
        if calls[method] == call:
            _die(0)
        return upstream(*given, **named)

    setattr(kind, method, counted)


def _die(seconds: float) -> None:
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def train_with_small_disk(script: str, argv: list[str], largest_file: int) -> dict:
    """Train by a method where no file may have more bytes than that: its exit code and what it said."""
    from tests.runs_ranks import train

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # write() then fails, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
    try:
        return train(script, argv, [])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def random_moments(seed: str, count: int, steps: int, ranks: int) -> list[list]:
    """[step, rank, seconds], steps ascending; the last step is left out, so that there is something to kill."""
    numbers = random.Random(seed)
    chosen = sorted(numbers.sample(range(1, steps - 1), count))
    return [[step, numbers.randrange(ranks), numbers.uniform(0, 0.1)] for step in chosen]
