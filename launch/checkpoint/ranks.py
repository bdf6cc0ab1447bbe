"""What all ranks of a run know together: values gathered, decisions taken on rank 0 and broadcast.

No rank decides from its own disk or clock.
"""

import os
from collections.abc import Callable
from typing import Any

import paddle

from launch.errors import UserError


def world_size() -> int:
    return paddle.distributed.get_world_size()


def rank() -> int:
    return paddle.distributed.get_rank()


def check_world() -> None:
    """Fail where this process believes to be alone though a launcher started several: it would train, and exit 0."""
    started = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    if world_size() != started:
        raise RuntimeError(f"started as one of {started} processes, but Paddle sees a world of {world_size()}")


def first_on_rank_zero(work: Callable) -> Any:
    """Run `work` on rank 0, then on the others, who find done what it leaves on disk. Returns its result.

    When it raises on rank 0, every rank raises the same UserError and none waits for ever.
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


def broadcast(value) -> Any:
    """Rank 0's value on every rank."""
    if world_size() == 1:
        return value
    values = [value]
    paddle.distributed.broadcast_object_list(values, src=0)
    return values[0]


def raise_first(fault: str | None) -> None:
    """Raises UserError on all ranks where any rank has a fault: the first one's. Called by all of them together."""
    faults = [found for found in gather(fault) if found]
    if faults:
        raise UserError(faults[0])


def total(value: float) -> float:
    """The sum of a number over all ranks."""
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
    """The value of every rank, by rank, on every rank."""
    if paddle.distributed.get_world_size() == 1:
        return [value]
    values: list = []
    paddle.distributed.all_gather_object(values, value)
    return values
