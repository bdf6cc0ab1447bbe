"""What the ranks of tests/processes/test_ranks.py do."""

import os


def place() -> dict:
    import paddle.distributed as dist

    return {
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "threads": os.environ["OMP_NUM_THREADS"],
        "colour": os.environ.get("COLOUR"),
    }


def sum_over_ranks(own: list[float]) -> float:
    """The sum of own[rank] over all ranks, by a collective."""
    import paddle
    import paddle.distributed as dist

    dist.init_parallel_env()
    total = paddle.to_tensor(own[dist.get_rank()])
    dist.all_reduce(total)
    return float(total)


def fail_on_rank(rank: int) -> None:
    if int(os.environ["PADDLE_TRAINER_ID"]) == rank:
        raise ValueError(f"a mistake on rank {rank}")


def exact() -> float:
    return 0.1 + 0.2


def sleep_forever() -> None:
    import time

    time.sleep(3600)
