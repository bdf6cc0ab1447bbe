"""The NVIDIA cards of this machine and their driver, as NVML tells them: no Paddle, no process started.

NVML numbers the cards by PCI bus and does not heed CUDA_VISIBLE_DEVICES. `nvml` is the module pynvml of
nvidia-ml-py; tests pass a stand-in with the same functions.
"""

import importlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Card:
    """One card. compute_capability: (major, minor), (8, 0) for an A100."""

    index: int
    name: str
    memory_bytes: int
    free_bytes: int
    compute_capability: tuple[int, int]
    uuid: str


class Driver(NamedTuple):
    """The NVIDIA driver's version, "550.54.14", and the newest CUDA version it runs, (12, 4)."""

    version: str
    cuda: tuple[int, int]


def list_cards(nvml=None) -> list[Card]:
    """All cards by index; empty without a driver or without nvidia-ml-py."""
    with _session(nvml) as nvml:
        if nvml is None:
            return []
        return [_card(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]


def driver(nvml=None) -> Driver | None:
    """The driver, or None without one or without nvidia-ml-py."""
    with _session(nvml) as nvml:
        if nvml is None:
            return None
        cuda = nvml.nvmlSystemGetCudaDriverVersion()  # 12040 for CUDA 12.4
        return Driver(nvml.nvmlSystemGetDriverVersion(), (cuda // 1000, cuda % 1000 // 10))


def _card(nvml, index: int) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Card(
        index=index,
        name=nvml.nvmlDeviceGetName(handle),
        memory_bytes=memory.total,
        free_bytes=memory.free,
        compute_capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        uuid=nvml.nvmlDeviceGetUUID(handle),
    )


@contextmanager
def _session(nvml):
    """NVML between its init and shutdown, or None where it cannot be had."""
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except ImportError:
        yield None
        return
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()
