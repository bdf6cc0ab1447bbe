"""The check of the cards, on simulated machines."""

import pytest

from launch.devices.cards import Driver, Process
from launch.preflight import gpus
from launch.preflight.gpus import check_cards, check_driver
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


def test_eight_good_cards(machine):
    machine(many("A100"))
    assert [(finding.ok, finding.subject, finding.found) for finding in check_cards(EIGHT, 80)] == [
        (True, "cards", "8 x NVIDIA A100-SXM4-80GB (80 GB)"),
        (True, "driver", "550.54.14, for CUDA up to 12.4; Paddle is the build for CUDA 12.6"),
        (True, "links", "NVLink between all 8"),
    ]


A_LITTLE_LESS = [card("A100", index, memory_bytes=int(79.2 * GIB), free_bytes=79 * GIB) for index in range(4)]
BUSY = card("A100", 1, free_bytes=38 * GIB, processes=(Process(4711, 40 * GIB), Process(12, None)))
DESKTOP = card("4090", 0, free_bytes=22 * GIB, processes=(Process(1, GIB),))
ERRORS = [card("A100", 0, ecc=True, memory_errors=3), card("A100", 1, ecc=False), card("A100", 2, ecc=True)]
TOO_FEW = "8 of 80 GB needed, here: "
CHOSEN = "2 of 80 GB needed, chosen: 1 x NVIDIA A100-SXM4-80GB (80 GB), 1 x NVIDIA A100-SXM4-40GB (40 GB)"
BY_WHOM = "42.0 of 80 GiB are in use by process 4711 (40.0 GiB), process 12"
OLD = {"version": "520.61.05", "cuda": 11080}
SEVERAL, OF_ONE = "of several kinds: 1 x ", "DEVICES=1,2 are of one kind"


@pytest.mark.parametrize(
    ("here", "options", "devices", "fault"),
    [
        (A_LITTLE_LESS, {"gb": 80}, "03", None),  # than their name says
        (many("A100", 2), {"gb": 80}, EIGHT, ("cards", f"{TOO_FEW}2 x NVIDIA A100-SXM4-80GB (80 GB)", "GPUS=2 ")),
        ([], {"has_driver": False, "gb": 80}, EIGHT, ("cards", f"{TOO_FEW}none", "run it on a machine that has them")),
        (
            [card("A100", 0), card("A100-40G", 1)],
            {"gb": 80},
            "01",
            ("cards", CHOSEN, "GPU_MEMORY_GB=40 to try all the same"),
        ),
        (many("A100", 2), {}, "05", ("cards", "no card 5 among 0, 1", "")),
        (many("A100", 2), {"visible": "1"}, "0", ("cards", "no card 0 among 0, 1", "")),
        (many("A100", 2), {"visible": "1"}, "1", None),
        (many("A100", 2), {"visible": "0, 1"}, "01", None),
        (many("A100", 2), {"visible": "GPU-1"}, ["GPU-1"], None),
        # which CUDA and NVML may number differently
        (
            [card("V100", 0), card("A100", 1)],
            {"order": None},
            "1",
            ("cards", "numbers by speed", "CUDA_DEVICE_ORDER=PCI_"),
        ),
        ([card("V100", 0), card("A100", 1)], {"order": None}, ["GPU-1"], None),
        *(
            ([card(other, 0), card("A100", 1), card("A100", 2)], {}, "012", ("cards", SEVERAL, OF_ONE))
            for other in ("A100-40G", "V100", "H100")
        ),
        ([card("V100", 0), card("A100", 1), card("A100", 2)], {}, "12", None),
        ([card("A100", 0), card("A100-PCIE", 1)], {}, "01", None),  # another name with the same abilities
        (
            [card("A100", 0), BUSY],
            {"gb": 80},
            "01",
            ("card 1", BY_WHOM, "stop it (nvidia-smi -i 1 shows it), or DEVICES="),
        ),
        ([card("A100", 0), BUSY], {"gb": 80}, "0", None),
        ([card("A100", 0, free_bytes=77 * GIB)], {}, "0", ("card 0", "3.0 of 80 GiB are in use by others", "stop it")),
        ([DESKTOP], {"gb": 24}, "0", None),
        ([card("A100", 0), card("A100", 1, mig=True)], {}, "01", ("MIG", "card 1 is cut into slices", "-i 1 -mig 0")),
        (ERRORS, {}, "01", ("card 0", "3 uncorrected memory errors", "--gpu-reset")),
        (many("A100", 1), OLD, "0", ("driver", "CUDA up to 11.8", "Update the driver")),
        ([card("A100", 0), card("B200", 1)], {}, "1", ("driver", "", "")),
        ([card("A100", 0), card("B200", 1)], {}, "0", None),  # only the chosen cards must suit the build
    ],
)
def test_faults_of_cards(machine, here, options, devices, fault):
    machine(here, **{name: value for name, value in options.items() if name != "gb"})
    found = [one for one in check_cards(tuple(devices), options.get("gb", 0)) if not one.ok]
    assert len(found) == (fault is not None), found
    if fault:
        [one], (subject, part, fix) = found, fault
        assert one.subject == subject and part in one.found and fix in one.fix


def test_slices_are_announced_for_one_card_and_no_ecc_is_told(machine):
    machine([card("A100", 0), card("A100", 1, mig=True)])
    assert [finding.ok for finding in check_cards(("1",)) if finding.subject == "MIG"] == [True]
    machine(ERRORS)
    assert check_cards(("1",))[0].found.endswith(", ECC off")
    assert check_cards(("2",))[0].found.endswith("(80 GB)")


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
