"""The driver against the CUDA version of Paddle's build."""

import pytest

from launch.devices.cards import Driver
from launch.preflight.machine.gpus import check_driver
from tests.devices.fake_nvml import card

A100, V100 = card("A100", 0), card("V100", 1)
CUDA_12_4, CUDA_13_0, CUDA_11_8 = (
    Driver("550.54.14", (12, 4)),
    Driver("580.65.06", (13, 0)),
    Driver("520.61.05", (11, 8)),
)


@pytest.mark.parametrize(
    ("driver", "cards", "build", "ok", "text"),
    [
        (None, [], "cpu", True, "no NVIDIA driver"),
        (None, [], None, True, "no NVIDIA driver"),
        (None, [], "12.6", False, "make setup DEVICE=cpu"),
        (CUDA_12_4, [A100], "cpu", False, "make setup-gpu CUDA=12.6"),
        (
            CUDA_12_4,
            [A100],
            "12.6",
            True,
            "550.54.14, for CUDA up to 12.4; Paddle is the build for CUDA 12.6",
        ),
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
