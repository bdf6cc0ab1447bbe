"""Simulated cards, and a stand-in for NVML that tells of them.

list_cards(FakeNvml([card("A100", 0), card("A100", 1)]))
"""

from dataclasses import replace
from types import SimpleNamespace

from launch.devices.cards import DetectedCard

# kind -> name as the driver gives it, memory in GiB, compute capability
KINDS = {
    "P100": ("Tesla P100-PCIE-16GB", 16, (6, 0)),
    "V100": ("Tesla V100-SXM2-32GB", 32, (7, 0)),
    "V100-16G": ("Tesla V100-SXM2-16GB", 16, (7, 0)),
    "T4": ("Tesla T4", 15, (7, 5)),
    "A100": ("NVIDIA A100-SXM4-80GB", 80, (8, 0)),
    "A100-40G": ("NVIDIA A100-SXM4-40GB", 40, (8, 0)),
    "A100-PCIE": ("NVIDIA A100 80GB PCIe", 80, (8, 0)),
    "3090": ("NVIDIA GeForce RTX 3090", 24, (8, 6)),
    "4090": ("NVIDIA GeForce RTX 4090", 24, (8, 9)),
    "H100": ("NVIDIA H100 80GB HBM3", 80, (9, 0)),
    "B200": ("NVIDIA B200", 180, (10, 0)),
    "5090": ("NVIDIA GeForce RTX 5090", 32, (12, 0)),
}
GIB = 2**30


def card(kind: str, index: int = 0, **changes) -> DetectedCard:
    """An idle card of a kind."""
    name, gib, capability = KINDS[kind]
    return replace(DetectedCard(index, name, gib * GIB, gib * GIB, capability, f"GPU-{index}"), **changes)


class NVMLError(Exception):
    pass


class FakeNvml:
    """The functions and constants of pynvml that we use; counts its open sessions.

    nvlink: pairs of indices, "all", or None where the driver does not tell.
    """

    NVMLError = NVMLError
    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_FEATURE_ENABLED = 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0

    def __init__(self, cards=(), version="550.54.14", cuda=12040, nvlink="all", has_driver=True):
        self.cards = list(cards)
        self.version, self.cuda, self.nvlink, self.has_driver = version, cuda, nvlink, has_driver
        self.sessions = 0

    def nvmlInit(self):
        if not self.has_driver:
            raise NVMLError("Driver Not Loaded")
        self.sessions += 1

    def nvmlShutdown(self):
        self.sessions -= 1

    def nvmlSystemGetDriverVersion(self):
        return self.version

    def nvmlSystemGetCudaDriverVersion(self):
        return self.cuda

    def nvmlDeviceGetCount(self):
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.cards[index]

    def nvmlDeviceGetName(self, card):
        return card.name

    def nvmlDeviceGetUUID(self, card):
        return card.uuid

    def nvmlDeviceGetMemoryInfo(self, card):
        used = card.memory_bytes - card.free_bytes
        return SimpleNamespace(total=card.memory_bytes, free=card.free_bytes, used=used)

    def nvmlDeviceGetCudaComputeCapability(self, card):
        return list(card.compute_capability)

    def nvmlDeviceGetComputeRunningProcesses(self, card):
        return [SimpleNamespace(pid=one.pid, usedGpuMemory=one.memory_bytes) for one in card.processes]

    def nvmlDeviceGetMigMode(self, card):
        if card.compute_capability not in [(8, 0), (9, 0), (10, 0)]:
            raise NVMLError("Not Supported")
        return [int(card.mig), 0]

    def nvmlDeviceGetEccMode(self, card):
        if card.ecc is None:
            raise NVMLError("Not Supported")
        return [int(card.ecc), int(card.ecc)]

    def nvmlDeviceGetTotalEccErrors(self, card, kind, since):
        if card.ecc is None:
            raise NVMLError("Not Supported")
        assert (kind, since) == (self.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, self.NVML_VOLATILE_ECC)
        return card.memory_errors

    def nvmlDeviceGetP2PStatus(self, one, other, capability):
        assert capability == self.NVML_P2P_CAPS_INDEX_NVLINK
        if self.nvlink is None:
            raise NVMLError("Not Supported")
        linked = self.nvlink == "all" or (one.index, other.index) in self.nvlink
        return self.NVML_P2P_STATUS_OK if linked else 4
