"""The device of this process as Paddle sees it: capability, memory peak, peak arithmetic."""

import time

import paddle
from paddle.base import core

from launch.devices.deterministic import check_switches
from launch.devices.peak import peak_flops
from launch.errors import UserError
from launch.training.ranks import barrier

MATMUL_SIZE = 1024
MATMULS = 5


def set_device(name: str, deterministic: bool = False) -> None:
    """Use the device of --device in this process. deterministic: make sure that Paddle was told so at its import.

    Raises UserError when there is none of the kind, or Paddle was not.
    """
    if name.startswith("gpu") and not _has_gpu():
        raise UserError(f"--device: found {name}, but there is no GPU for Paddle here. Use --device cpu, or rehearse.")
    paddle.set_device(name)
    if deterministic and on_gpu():
        check_switches(lambda flag: paddle.get_flags([flag])[flag])


def compute_capability(device: str | None = None) -> tuple[int, int] | None:
    """(major, minor) of this process's card, None on a CPU. device: as --device says it, None for the one in use."""
    on_card = on_gpu() if device is None else device.startswith("gpu") and _has_gpu()
    return paddle.device.cuda.get_device_capability() if on_card else None


def _has_gpu() -> bool:
    return paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0


def on_gpu() -> bool:
    return paddle.get_device().startswith("gpu")


def card_name() -> str:
    """As the driver calls this process's card, "" on a CPU."""
    return paddle.device.cuda.get_device_name() if on_gpu() else ""


def peak_memory_bytes() -> int:
    """The most bytes Paddle's allocator has held for tensors at once in this process."""
    if on_gpu():
        return paddle.device.cuda.max_memory_allocated()
    return core.host_memory_stat_peak_value("Allocated", 0)


def device_peak_flops(dtype: str) -> float:
    """Peak FLOP/s of this process's device in the dtype of training.

    A card we know: its datasheet. Otherwise (a CPU, an unknown card) the rate of a large matrix product, measured
    now on all ranks at once, who may share a CPU's cores: utilisation then means "of what this machine's own matrix
    product reaches".
    """
    if on_gpu():
        known = peak_flops(paddle.device.cuda.get_device_name())
        if known and dtype != "float32":
            return known
    barrier()
    return _measured_matmul_flops(dtype)


def _measured_matmul_flops(dtype: str) -> float:
    """FLOP/s of a matrix product, over several after one that warms up."""
    a = paddle.ones([MATMUL_SIZE, MATMUL_SIZE], dtype=dtype)
    float(paddle.matmul(a, a)[0, 0])  # reading a value waits for the device
    start = time.perf_counter()
    for _ in range(MATMULS):
        float(paddle.matmul(a, a)[0, 0])
    return MATMULS * 2 * MATMUL_SIZE**3 / (time.perf_counter() - start)
