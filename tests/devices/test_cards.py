"""Cards, driver and links through a stand-in for NVML."""

import sys

from launch.devices.cards import Driver, Process, driver, list_cards, nvlink_pairs
from tests.devices.fake_nvml import GIB, FakeNvml, card

A100S = [card("A100", 0), card("A100", 1, free_bytes=79 * GIB)]


def test_cards_their_processes_slices_errors_and_nvlink_are_listed():
    nvml = FakeNvml(A100S)
    assert list_cards(nvml) == A100S
    assert driver(nvml) == Driver("550.54.14", (12, 4))
    assert (A100S[1].memory_bytes, A100S[1].free_bytes, A100S[1].uuid) == (85899345920, 84825604096, "GPU-1")
    assert nvml.sessions == 0
    told = [
        card("A100", 0, processes=(Process(71, 3 * GIB), Process(72, None)), ecc=True, memory_errors=2),
        card("A100", 1, mig=True, ecc=False),
        card("3090", 2, ecc=None),
    ]
    assert list_cards(FakeNvml(told)) == told
    four = [card("A100", index) for index in range(4)]
    nvml = FakeNvml(four, nvlink={(0, 1), (2, 3)})
    assert nvlink_pairs(four, nvml) == [(0, 1), (2, 3)]
    assert nvlink_pairs(four[1:], nvml) == [(2, 3)]
    assert nvml.sessions == 0
    assert nvlink_pairs(four, FakeNvml(four, nvlink=None)) is None


def test_without_a_driver_or_the_library_there_is_nothing(monkeypatch):
    none = FakeNvml(A100S, has_driver=False)
    assert (list_cards(none), driver(none), nvlink_pairs(A100S, none)) == ([], None, None)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # makes its import fail
    assert (list_cards(), driver()) == ([], None)
