"""How fast the nodes of a run sum a tensor, measured before the model is built."""

import os
import time

import paddle

from launch.training.ranks import barrier, world_size

BYTES = 64 * 2**20
REPETITIONS = 5


def measure_network() -> list[str]:
    """Time an all-reduce of 64 MiB of float32 over all ranks; the line to tell. Nothing, [], on one node."""
    if int(os.environ.get("PADDLE_NNODES", "1")) == 1:
        return []
    tensor = paddle.ones([BYTES // 4], dtype="float32")
    _all_reduce(tensor)  # connects the ranks
    barrier()
    start = time.perf_counter()
    for _ in range(REPETITIONS):
        _all_reduce(tensor)
    seconds = (time.perf_counter() - start) / REPETITIONS
    return [
        f"all-reduce: {BYTES >> 20} MiB over {world_size()} ranks in {1e3 * seconds:.1f} ms, "
        f"{bus_bandwidth(BYTES, seconds, world_size()) / 1e9:.2f} GB/s a rank (bus bandwidth)"
    ]


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """Bytes a second that each rank has to send and receive: comparable with a network's speed, whatever the ranks.

    An all-reduce moves 2 (n - 1) / n times its size through each of n ranks
    (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md, "AllReduce").
    """
    return 2 * (ranks - 1) / ranks * size / seconds


def _all_reduce(tensor: paddle.Tensor) -> None:
    paddle.distributed.all_reduce(tensor)
    float(tensor[0])  # reading a value waits for the device
