"""Cards and driver through a stand-in for NVML."""

import sys
from types import SimpleNamespace

from launch.devices.cards import Card, Driver, driver, list_cards


class NVMLError(Exception):
    pass


class Nvml:
    """Two A100 of 80 GB under a driver for CUDA 12.4; counts its open sessions."""

    NVMLError = NVMLError

    def __init__(self, has_driver=True):
        self.has_driver = has_driver
        self.sessions = 0

    def nvmlInit(self):
        if not self.has_driver:
            raise NVMLError("Driver Not Loaded")
        self.sessions += 1

    def nvmlShutdown(self):
        self.sessions -= 1

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA A100-SXM4-80GB"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=85899345920, free=85899345920 - handle, used=handle)

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        return [8, 0]

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}"

    def nvmlSystemGetDriverVersion(self):
        return "550.54.14"

    def nvmlSystemGetCudaDriverVersion(self):
        return 12040


def test_cards_are_listed_by_index():
    nvml = Nvml()
    assert list_cards(nvml) == [
        Card(0, "NVIDIA A100-SXM4-80GB", 85899345920, 85899345920, (8, 0), "GPU-0"),
        Card(1, "NVIDIA A100-SXM4-80GB", 85899345920, 85899345919, (8, 0), "GPU-1"),
    ]
    assert nvml.sessions == 0


def test_driver_and_its_cuda_version():
    nvml = Nvml()
    assert driver(nvml) == Driver("550.54.14", (12, 4))
    assert nvml.sessions == 0


def test_without_a_driver_there_is_nothing():
    assert list_cards(Nvml(has_driver=False)) == []
    assert driver(Nvml(has_driver=False)) is None


def test_without_the_library_there_is_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)  # makes its import fail
    assert list_cards() == []
    assert driver() is None
