"""The NVIDIA cards of this machine and their driver, as NVML tells them: no Paddle, no process started.

NVML numbers the cards by PCI bus and does not heed CUDA_VISIBLE_DEVICES. `nvml` is the module pynvml of
nvidia-ml-py; tests pass a stand-in with the same functions.
"""

import importlib
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple


class Process(NamedTuple):
    """A process that computes on a card. memory_bytes: None where NVML does not tell."""

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True)
class Card:
    """One card.

    compute_capability: (major, minor), (8, 0) for an A100
    processes:          those that compute on it, as far as NVML tells
    mig:                cut into slices (multi-instance GPU)
    ecc:                its memory corrects errors; None: this kind of card cannot
    memory_errors:      that ECC found and could not correct since the driver was loaded
    """

    index: int
    name: str
    memory_bytes: int
    free_bytes: int
    compute_capability: tuple[int, int]
    uuid: str
    processes: tuple[Process, ...] = ()
    mig: bool = False
    ecc: bool | None = None
    memory_errors: int = 0


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


def nvlink_pairs(cards: list[Card], nvml=None) -> list[tuple[int, int]] | None:
    """The pairs of these cards, by index, that reach each other over NVLink, directly or through NVSwitch.

    None where NVML does not tell.
    """
    with _session(nvml) as nvml:
        if nvml is None:
            return None
        handles = {card.index: nvml.nvmlDeviceGetHandleByIndex(card.index) for card in cards}
        pairs = []
        for one, other in combinations(handles, 2):
            index = nvml.NVML_P2P_CAPS_INDEX_NVLINK
            status = _ask(nvml, "nvmlDeviceGetP2PStatus", handles[one], handles[other], index)
            if status is None:
                return None
            if status == nvml.NVML_P2P_STATUS_OK:
                pairs.append((one, other))
        return pairs


def _card(nvml, index: int) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    mig = _ask(nvml, "nvmlDeviceGetMigMode", handle)  # (now, after the next reset)
    ecc = _ask(nvml, "nvmlDeviceGetEccMode", handle)  # likewise
    kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    processes = _ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or []
    return Card(
        index=index,
        name=nvml.nvmlDeviceGetName(handle),
        memory_bytes=memory.total,
        free_bytes=memory.free,
        compute_capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        uuid=nvml.nvmlDeviceGetUUID(handle),
        processes=tuple(Process(one.pid, one.usedGpuMemory) for one in processes),
        mig=mig is not None and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE,
        ecc=None if ecc is None else ecc[0] == nvml.NVML_FEATURE_ENABLED,
        memory_errors=_ask(nvml, "nvmlDeviceGetTotalEccErrors", handle, kind, since) or 0,
    )


def _ask(nvml, function: str, *arguments):
    """What NVML answers, None where this card or driver has no answer."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError:
        return None


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
