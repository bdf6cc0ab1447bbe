"""The NVIDIA cards of this machine and their driver, as reported by NVML, and their peak arithmetic. No Paddle here.

NVML numbers the cards by PCI bus and does not heed CUDA_VISIBLE_DEVICES. `nvml` is the module pynvml of
nvidia-ml-py; tests pass a stand-in with the same functions. No process is started.
"""

import importlib
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple


class Process(NamedTuple):
    """A process that computes on a card.

    Attributes:
        memory_bytes: None where NVML does not report it.
    """

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True)
class DetectedCard:
    """One card.

    Attributes:
        compute_capability: (major, minor), (8, 0) for an A100.
        processes: Processes that compute on it, as far as NVML reports them.
        mig: Cut into slices (multi-instance GPU).
        ecc: Its memory corrects errors; None: this kind of card cannot.
        memory_errors: That ECC found and could not correct since the driver was loaded.
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


def list_cards(nvml=None) -> list[DetectedCard]:
    """Return all cards by index; empty without a driver or without nvidia-ml-py."""
    with _session(nvml) as nvml:
        if nvml is None:
            return []
        return [_card(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]


def visible_devices() -> list[str]:
    """Return the cards that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [word.strip() for word in listed.split(",") if word.strip()]
    return [str(card.index) for card in list_cards()]


def driver(nvml=None) -> Driver | None:
    """Return the driver, or None without one or without nvidia-ml-py."""
    with _session(nvml) as nvml:
        if nvml is None:
            return None
        cuda = nvml.nvmlSystemGetCudaDriverVersion()  # 12040 for CUDA 12.4
        return Driver(nvml.nvmlSystemGetDriverVersion(), (cuda // 1000, cuda % 1000 // 10))


def nvlink_pairs(cards: list[DetectedCard], nvml=None) -> list[tuple[int, int]] | None:
    """Return the pairs of cards, by index, that reach each other over NVLink, directly or through NVSwitch.

    Return None where NVML does not report it.
    """
    with _session(nvml) as nvml:
        if nvml is None:
            return None
        handles = {card.index: nvml.nvmlDeviceGetHandleByIndex(card.index) for card in cards}
        pairs = []
        for first, second in combinations(handles, 2):
            index = nvml.NVML_P2P_CAPS_INDEX_NVLINK
            status = _ask(nvml, "nvmlDeviceGetP2PStatus", handles[first], handles[second], index)
            if status is None:
                return None
            if status == nvml.NVML_P2P_STATUS_OK:
                pairs.append((first, second))
        return pairs


def _card(nvml, index: int) -> DetectedCard:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    mig = _ask(nvml, "nvmlDeviceGetMigMode", handle)  # (now, after the next reset)
    ecc = _ask(nvml, "nvmlDeviceGetEccMode", handle)  # likewise
    kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    processes = _ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or []
    return DetectedCard(
        index=index,
        name=nvml.nvmlDeviceGetName(handle),
        memory_bytes=memory.total,
        free_bytes=memory.free,
        compute_capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        uuid=nvml.nvmlDeviceGetUUID(handle),
        processes=tuple(Process(process.pid, process.usedGpuMemory) for process in processes),
        mig=mig is not None and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE,
        ecc=None if ecc is None else ecc[0] == nvml.NVML_FEATURE_ENABLED,
        memory_errors=_ask(nvml, "nvmlDeviceGetTotalEccErrors", handle, kind, since) or 0,
    )


def _ask(nvml, function: str, *arguments):
    """Return NVML's answer, None where this card or driver has none."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError:
        return None


@contextmanager
def _session(nvml):
    """Yield NVML between its init and shutdown, or None where it cannot be had."""
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


# By the model as its driver names it: dense tensor-core rates in TFLOP/s for float16 and bfloat16 with float32
# accumulation, half of the figure where a data sheet gives the one with sparsity. GeForce cards of Ampere and later
# accumulate in float32 at half their rate, cards for data centers and workstations at the whole.
TERAFLOPS = {
    # NVIDIA V100 datasheet (SXM2; PCIe; V100S), T4 datasheet
    "V100": 125,
    "V100 PCIE": 112,
    "V100S PCIE": 130,
    "T4": 65,
    # NVIDIA datasheets of A100, A800, A10, A30, A40; GA102 whitepaper v2 (RTX A6000)
    "A100": 312,
    "A800": 312,
    "A10": 125,
    "A30": 165,
    "A40": 149.7,
    "A6000": 154.8,
    # NVIDIA Ampere GA102 whitepaper v2 (3070, 3080, 3090); the others: twice the float32 rate of their specifications,
    # as there
    "3060": 25.5,
    "3060 TI": 32.4,
    "3070": 40.6,
    "3070 TI": 43.5,
    "3080": 59.5,
    "3080 TI": 68.2,
    "3090": 71,
    "3090 TI": 80,
    # NVIDIA datasheets of H100 (SXM5, PCIe, NVL), H200 (SXM5, NVL), H800; H20: as its vendors give it
    "H100": 989,
    "H100 PCIE": 756,
    "H100 NVL": 835,
    "H200": 989,
    "H200 NVL": 835,
    "H800": 989,
    "H800 PCIE": 756,
    "H20": 148,
    # NVIDIA datasheets of L4, L40, L40S, RTX 6000 Ada; L20: as its vendors give it
    "L4": 121,
    "L20": 119.5,
    "L40": 181,
    "L40S": 362,
    "6000 ADA": 364.2,
    # NVIDIA Ada whitepaper v2.02 (4090, 4080); the others: twice the float32 rate of their specifications, as there
    "4060": 30.2,
    "4060 TI": 44.1,
    "4070": 58.3,
    "4070 SUPER": 71,
    "4070 TI": 80.2,
    "4070 TI SUPER": 88.2,
    "4080": 97.5,
    "4080 SUPER": 104.4,
    "4090": 165.2,
    "4090 D": 147.1,
    # NVIDIA RTX Blackwell whitepaper (50 series), RTX PRO Blackwell whitepaper, DGX B200 datasheet (of 8 cards)
    "5070": 61.7,
    "5070 TI": 87.9,
    "5080": 112.6,
    "5090": 209.5,
    "PRO 6000 WORKSTATION": 503.8,
    "PRO 6000 MAX Q WORKSTATION": 438.9,
    "PRO 6000 SERVER": 500,
    "B200": 2250,
}
# Words of a name that say nothing about the rate: maker, series, memory and socket.
SILENT = re.compile(r"NVIDIA|TESLA|GEFORCE|RTX|GPU|BLACKWELL|GENERATION|EDITION|\d+GB?|HBM\w*|SXM\d?")


def peak_flops(card_name: str) -> float | None:
    """Return the FLOP/s of a card in half precision by the driver's name for it, such as "NVIDIA A100-SXM4-80GB".

    Return None for an unknown one, also where the name has a word more than a known card's: a laptop's card and a slice
    of one (MIG) are other cards.
    """
    words = [word for word in re.split(r"[\s-]+", card_name.upper()) if word and not SILENT.fullmatch(word)]
    model = " ".join(words)
    found = TERAFLOPS.get(model) or TERAFLOPS.get(model.removesuffix(" PCIE"))
    return found * 1e12 if found else None
