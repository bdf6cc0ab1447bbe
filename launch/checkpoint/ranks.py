"""Values shared by all ranks of a run: gathered, or decided on rank 0 and broadcast.

No rank decides from its own disk or clock.
"""

import os
from collections.abc import Callable
from typing import Any

import paddle

from launch.errors import UserError


def world_size() -> int:
    """Return the number of processes."""
    return paddle.distributed.get_world_size()


def rank() -> int:
    """Return the number of this process."""
    return paddle.distributed.get_rank()


def check_world() -> None:
    """Raise RuntimeError where a launcher started several processes but Paddle sees one: it would train alone."""
    started = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    if world_size() != started:
        raise RuntimeError(f"started as one of {started} processes, but Paddle sees a world of {world_size()}")


def first_on_rank_zero(work: Callable) -> Any:
    """Run `work` on rank 0, then on the others, which find what it left on disk. Returns its result.

    Where it raises on rank 0, every rank raises the same UserError, so that none waits forever.
    """
    if world_size() == 1:
        return work()
    failure, result = None, None
    if rank() == 0:
        try:
            result = work()
        except (UserError, ValueError, OSError) as error:
            failure = str(error) or repr(error)
    failure = broadcast(failure)
    if failure is not None:
        raise UserError(failure)
    return result if rank() == 0 else work()


def on_rank_zero(work: Callable) -> Any:
    """Run `work` on rank 0 alone, whose error every rank raises. Returns its result there, None elsewhere."""
    return first_on_rank_zero(lambda: work() if rank() == 0 else None)


def broadcast(value) -> Any:
    """Rank 0's value on every rank."""
    if world_size() == 1:
        return value
    values = [value]
    paddle.distributed.broadcast_object_list(values, src=0)
    return values[0]


def raise_first(fault: str | None) -> None:
    """Raise UserError with the first fault on all ranks where any rank has one. All ranks call it together."""
    faults = [found for found in gather(fault) if found]
    if faults:
        raise UserError(faults[0])


def total(value: float) -> float:
    """Return the sum of a number over all ranks."""
    if world_size() == 1:
        return value
    summed = paddle.to_tensor([value], dtype="float64")
    paddle.distributed.all_reduce(summed)
    return float(summed)


def barrier() -> None:
    """Wait until every rank is here."""
    if world_size() > 1:
        paddle.distributed.barrier()


def gather(value) -> list:
    """Return the values of all ranks, in their order, on every rank."""
    if world_size() == 1:
        return [value]
    values: list = []
    paddle.distributed.all_gather_object(values, value)
    return values


def first_of_ranks(found: str) -> str:
    """Return the first text that is not "" among all ranks, in their order: the same on all ranks."""
    texts = gather(found)
    for rank, text in enumerate(texts):
        if text:
            return text if set(texts) == {text} else f"on rank {rank}: {text}"
    return ""
