"""The device of this process as Paddle sees it: capability, memory peak, peak arithmetic."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import paddle
from paddle.base import core

from launch.checkpoint.ranks import barrier, world_size
from launch.devices.cards import list_cards, peak_flops, visible_devices
from launch.devices.paddle_flags import check_switches
from launch.errors import UserError

# Matrices' size, and how many products are timed. A card of 100 TFLOP/s needs 11 ms for one of 8192: a launch, some
# microseconds, does not count.
CARD_MATMULS = (8192, 10)
CPU_MATMULS = (512, 1)
CPU_ROUNDS = 5  # of which the fastest counts: other work takes the cores now and then


def set_device(name: str, deterministic: bool = False) -> None:
    """Use the device of --device in this process. deterministic: make sure that Paddle was set so at its import.

    Raises:
        UserError: If there is none of the kind, or Paddle was not.
    """
    if name.startswith("gpu") and not _has_gpu():
        raise UserError(f"--device: found {name}, but there is no GPU for Paddle here. Use --device cpu, or rehearse.")
    paddle.set_device(name)
    if deterministic and on_gpu():
        check_switches(lambda flag: paddle.get_flags([flag])[flag])


def compute_capability(device: str | None = None) -> tuple[int, int] | None:
    """Return (major, minor) of this process's card, None on a CPU.

    Args:
        device: As in --device, before set_device was called; None: the one in use.
    """
    if device is None:
        return paddle.device.cuda.get_device_capability(_card()) if on_gpu() else None
    if not device.startswith("gpu") or not _has_gpu():
        return None
    number = device.partition(":")[2] or paddle.distributed.ParallelEnv().device_id  # "gpu" is the card of this rank
    return paddle.device.cuda.get_device_capability(int(number))


def _card() -> int:
    """Return the number of the card in use.

    Without a number Paddle answers for the one that CUDA has current in this thread, which is card 0 in a new one.
    """
    return int(paddle.get_device().partition(":")[2])


def _has_gpu() -> bool:
    return paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0


def on_gpu() -> bool:
    """Return whether this process uses a card."""
    return paddle.get_device().startswith("gpu")


def card_name() -> str:
    """Return the driver's name of this process's card, "" on a CPU."""
    return paddle.device.cuda.get_device_name(_card()) if on_gpu() else ""


def peak_memory_bytes() -> int:
    """Return the peak of the bytes that Paddle's allocator had in tensors in this process."""
    if on_gpu():
        return paddle.device.cuda.max_memory_allocated(_card())
    return core.host_memory_stat_peak_value("Allocated", 0)


def free_bytes() -> int | None:
    """Return what of this process's card is free; None on a CPU, and where the driver does not know the card."""
    if not on_gpu():
        return None
    paddle.device.cuda.empty_cache()
    device = visible_devices()[_card()]
    return next((card.free_bytes for card in list_cards() if device in (str(card.index), card.uuid)), None)


WITH_ATTENTION = "a%/b% is without and with the operations of attention"


@dataclass(frozen=True)
class Peak:
    """FLOP/s of this process's device at most.

    Attributes:
        note: A line that says of what MFU is a share.
    """

    flops: float
    note: str


def device_peak(dtype: str, multiply: Callable | None = None) -> Peak:
    """Return the peak rate of this process's device in the dtype of training.

    A card we know: its datasheet. Otherwise (a CPU, an unknown card, float32) the rate of a large matrix product,
    measured now on all ranks at once: utilisation then means "of what this machine's own matrix product reaches". A
    CPU's is that of the fastest product, as on cores that nobody else uses: where eight ranks share two cores, they can
    reach a quarter of it.

    Args:
        dtype: Of training.
        multiply: A CPU's product of matrices; None: Paddle's.
    """
    known = peak_flops(card_name()) if on_gpu() and dtype != "float32" else None
    if known:
        return Peak(known, f"MFU: of {known / 1e12:,.0f} TFLOP/s, the datasheet's of {card_name()}; {WITH_ATTENTION}")
    barrier()
    if not on_gpu():
        flops = max(_measured_matmul_flops(dtype, *CPU_MATMULS, multiply) for _ in range(CPU_ROUNDS))
        reached = f"{flops / 1e9:,.0f} GFLOP/s, which a product of matrices reached here just now"
        return Peak(flops, f"MFU: of {reached}; {WITH_ATTENTION}")
    size, count = CARD_MATMULS
    flops = _measured_matmul_flops(dtype, size, count)
    return Peak(
        flops,
        f"MFU: of {flops / 1e12:.1f} TFLOP/s, which {count} products of {size:,} x {size:,} {dtype} matrices reached "
        f"here; no datasheet's figure is known for {card_name()} in {dtype}; {WITH_ATTENTION}",
    )


def _measured_matmul_flops(dtype: str, size: int, count: int, multiply: Callable | None = None) -> float:
    """Return FLOP/s of matrix products, over several after one that warms up.

    The device is waited for around all of them.
    """
    a = paddle.ones([size, size], dtype=dtype)  # pyright: ignore[reportArgumentType]  # one of the stub's names
    multiply = multiply or paddle.matmul
    multiply(a, a)
    _wait_for_device()
    start = time.perf_counter()
    for _ in range(count):
        multiply(a, a)
    _wait_for_device()
    return count * 2 * size**3 / (time.perf_counter() - start)


def _wait_for_device() -> None:
    if on_gpu():
        paddle.device.synchronize()


# ---- the network between nodes


NETWORK_BYTES = 64 * 2**20
NETWORK_REPETITIONS = 5


def measure_network() -> list[str]:
    """Time an all-reduce of 64 MiB of float32 over all ranks; the line to print. Nothing, [], on one node."""
    if int(os.environ.get("PADDLE_NNODES", "1")) == 1:
        return []
    tensor = paddle.ones([NETWORK_BYTES // 4], dtype="float32")
    _all_reduce(tensor)  # connects the ranks
    barrier()
    start = time.perf_counter()
    for _ in range(NETWORK_REPETITIONS):
        _all_reduce(tensor)
    seconds = (time.perf_counter() - start) / NETWORK_REPETITIONS
    return [
        f"all-reduce: {NETWORK_BYTES >> 20} MiB over {world_size()} ranks in {1e3 * seconds:.1f} ms, "
        f"{bus_bandwidth(NETWORK_BYTES, seconds, world_size()) / 1e9:.2f} GB/s a rank (bus bandwidth)"
    ]


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """Return the bytes a second that each rank has to send and receive, comparable with a network's speed.

    An all-reduce moves 2 (n - 1) / n times its size through each of n ranks
    (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md, "AllReduce").
    """
    return 2 * (ranks - 1) / ranks * size / seconds


def _all_reduce(tensor: paddle.Tensor) -> None:
    paddle.distributed.all_reduce(tensor)
    float(tensor[0])  # reading a value waits for the device
