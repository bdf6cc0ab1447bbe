"""The check of the cards, on simulated machines."""

import pytest

from launch.devices.cards import Driver, Process
from launch.preflight import gpus
from launch.preflight.gpus import check_cards, check_driver
from launch.preflight.report import Finding
from tests.devices.fake_nvml import GIB, FakeNvml, card

EIGHT = tuple("01234567")


@pytest.fixture
def machine(monkeypatch):
    """machine(cards, CUDA_VISIBLE_DEVICES="1"): those cards are here, with a Paddle built for CUDA 12.6."""

    def make(here, visible=None, order="PCI_BUS_ID", **keywords):
        nvml = FakeNvml(here, **keywords)
        for variable, value in (("CUDA_VISIBLE_DEVICES", visible), ("CUDA_DEVICE_ORDER", order)):
            monkeypatch.setenv(variable, value) if value else monkeypatch.delenv(variable, raising=False)
        for name in ("list_cards", "driver"):
            monkeypatch.setattr(gpus, name, lambda real=REAL[name]: real(nvml))
        monkeypatch.setattr(gpus, "nvlink_pairs", lambda chosen: REAL["nvlink_pairs"](chosen, nvml))
        monkeypatch.setattr(gpus, "paddle_build", lambda: "12.6")

    return make


REAL = {name: getattr(gpus, name) for name in ("list_cards", "driver", "nvlink_pairs")}


def many(kind: str, count: int = 8) -> list:
    return [card(kind, index) for index in range(count)]


def faults(devices, memory_gb=0) -> list[Finding]:
    return [finding for finding in check_cards(devices, memory_gb) if not finding.ok]


def told(devices, memory_gb=0) -> tuple[str, str, str]:
    """The only fault: its subject, what was found, the fix."""
    (fault,) = faults(devices, memory_gb)
    return fault.subject, fault.found, fault.fix


def test_eight_good_cards(machine):
    machine(many("A100"))
    assert [(finding.ok, finding.subject, finding.found) for finding in check_cards(EIGHT, 80)] == [
        (True, "cards", "8 x NVIDIA A100-SXM4-80GB (80 GB)"),
        (True, "driver", "550.54.14, for CUDA up to 12.4; Paddle is the build for CUDA 12.6"),
        (True, "links", "NVLink between all 8"),
    ]


def test_too_few_cards_and_too_little_memory(machine):
    """Cards report a little less than their name."""
    machine([card("A100", index, memory_bytes=int(79.2 * GIB), free_bytes=79 * GIB) for index in range(4)])
    assert faults(("0", "3"), 80) == []
    machine(many("A100", 2))
    subject, found, fix = told(EIGHT, 80)
    assert (subject, found) == ("cards", "8 of 80 GB needed, here: 2 x NVIDIA A100-SXM4-80GB (80 GB)")
    assert fix.startswith("GPUS=2 ")
    machine([], has_driver=False)
    assert told(EIGHT, 80) == ("cards", "8 of 80 GB needed, here: none", "run it on a machine that has them")
    machine([card("A100", 0), card("A100-40G", 1)])
    found = "2 of 80 GB needed, chosen: 1 x NVIDIA A100-SXM4-80GB (80 GB), 1 x NVIDIA A100-SXM4-40GB (40 GB)"
    assert told(("0", "1"), 80) == ("cards", found, "GPU_MEMORY_GB=40 to try all the same")


def test_numbers_and_uuids_of_cards(machine):
    machine(many("A100", 2))
    assert told(("0", "5"))[:2] == ("cards", "no card 5 among 0, 1")
    machine(many("A100", 2), visible="1")
    assert told(("0",))[:2] == ("cards", "no card 0 among 0, 1")
    assert faults(("1",)) == []
    machine(many("A100", 2), visible="0, 1")
    assert faults(("0", "1")) == []
    machine(many("A100", 2), visible="GPU-1")
    assert faults(("GPU-1",)) == []
    machine([card("V100", 0), card("A100", 1)], order=None)  # which CUDA and NVML may number differently
    subject, found, fix = told(("1",))
    assert subject == "cards" and "numbers by speed" in found and "CUDA_DEVICE_ORDER=PCI_BUS_ID" in fix
    assert faults(("GPU-1",)) == []


@pytest.mark.parametrize("other", ["A100-40G", "V100", "H100"])
def test_cards_of_several_kinds(machine, other):
    """Another name with the same abilities is the same kind."""
    machine([card(other, 0), card("A100", 1), card("A100", 2)])
    subject, found, fix = told(("0", "1", "2"))
    assert subject == "cards" and found.startswith("of several kinds: 1 x ") and "2 x NVIDIA A100-SXM4-80GB" in found
    assert fix == "DEVICES=1,2 are of one kind"
    assert faults(("1", "2")) == []
    machine([card("A100", 0), card("A100-PCIE", 1)])
    assert faults(("0", "1")) == []


def test_a_card_in_use_is_named_with_who_uses_it(machine):
    """What driver and desktop take is no fault."""
    busy = card("A100", 1, free_bytes=38 * GIB, processes=(Process(4711, 40 * GIB), Process(12, None)))
    machine([card("A100", 0), busy])
    assert told(("0", "1"), 80) == (
        "card 1",
        "42.0 of 80 GiB are in use by process 4711 (40.0 GiB), process 12",
        "stop it (nvidia-smi -i 1 shows it), or DEVICES=0,1,... names other cards",
    )
    assert faults(("0",), 80) == []
    machine([card("A100", 0, free_bytes=77 * GIB)])
    assert told(("0",))[1] == "3.0 of 80 GiB are in use by others"
    machine([card("4090", 0, free_bytes=22 * GIB, processes=(Process(1, GIB),))])
    assert faults(("0",), 24) == []


def test_slices_are_refused_for_several_cards_and_announced_for_one(machine):
    machine([card("A100", 0), card("A100", 1, mig=True)])
    subject, found, fix = told(("0", "1"))
    assert subject == "MIG" and found.startswith("card 1 is cut into slices") and "nvidia-smi -i 1 -mig 0" in fix
    announced = [finding for finding in check_cards(("1",)) if finding.subject == "MIG"]
    assert [finding.ok for finding in announced] == [True]


def test_memory_errors_are_refused_and_no_ecc_is_told(machine):
    machine([card("A100", 0, ecc=True, memory_errors=3), card("A100", 1, ecc=False), card("A100", 2, ecc=True)])
    subject, found, fix = told(("0", "1"))
    assert subject == "card 0" and found.startswith("3 uncorrected memory errors") and "--gpu-reset" in fix
    assert check_cards(("1",))[0].found.endswith(", ECC off")
    assert check_cards(("2",))[0].found.endswith("(80 GB)")


def test_a_driver_too_old_for_the_build(machine):
    machine(many("A100", 1), version="520.61.05", cuda=11080)
    subject, found, fix = told(("0",))
    assert subject == "driver" and "CUDA up to 11.8" in found and "Update the driver" in fix
    machine([card("A100", 0), card("B200", 1)])
    assert faults(("0",)) == [], "only the chosen cards must suit the build"
    assert told(("1",))[0] == "driver"


@pytest.mark.parametrize(
    ("nvlink", "line"),
    [
        ("all", "NVLink between all 4"),
        ({(0, 1), (2, 3)}, "NVLink between 0-1, 2-3; PCIe between the others: slow for tensor parallel"),
        (set(), "PCIe only: tensor parallel will be slow"),
        (None, None),
    ],
)
def test_links(machine, nvlink, line):
    machine(many("A100", 4), nvlink=nvlink)
    links = [finding.found for finding in check_cards(tuple("0123")) if finding.subject == "links"]
    assert links == ([line] if line else [])
    assert [finding for finding in check_cards(("0",)) if finding.subject == "links"] == []


A100, V100 = card("A100", 0), card("V100", 1)
CUDA_12_4, CUDA_13_0 = Driver("550.54.14", (12, 4)), Driver("580.65.06", (13, 0))
CUDA_11_8 = Driver("520.61.05", (11, 8))


@pytest.mark.parametrize(
    ("driver", "cards", "build", "ok", "text"),
    [
        (None, [], "cpu", True, "no NVIDIA driver"),
        (None, [], None, True, "no NVIDIA driver"),
        (None, [], "12.6", False, "make setup DEVICE=cpu"),
        (CUDA_12_4, [A100], "cpu", False, "make setup-gpu CUDA=12.6"),
        (CUDA_12_4, [A100], "12.6", True, "550.54.14, for CUDA up to 12.4; Paddle is the build for CUDA 12.6"),
        (CUDA_12_4, [A100], "13.0", False, "make setup-gpu CUDA=12.6"),
        (CUDA_13_0, [A100], "13.0", True, "580.65.06"),
        (CUDA_13_0, [V100], "13.0", False, "make setup-gpu CUDA=12.6"),
        (CUDA_11_8, [A100], "12.6", False, "Update the driver"),
    ],
)
def test_driver_against_paddle(driver, cards, build, ok, text):
    finding = check_driver(driver, cards, build)
    assert finding.ok is ok
    assert text in (finding.found if ok else finding.fix)
