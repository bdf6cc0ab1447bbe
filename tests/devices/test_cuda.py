"""Which GPU build is chosen, by the driver's CUDA version and the cards' compute capability."""

import ctypes

import pytest

from launch.devices import cuda
from launch.errors import UserError

V100, T4, A100, H100, B200, RTX5090 = (7, 0), (7, 5), (8, 0), (9, 0), (10, 0), (12, 0)


@pytest.mark.parametrize(
    ("driver", "cards", "tag"),
    [
        ((12, 0), [A100] * 8, "cu126"),  # 12.x runs on any driver of 12
        ((12, 7), [H100], "cu126"),
        ((12, 8), [H100], "cu129"),
        ((13, 2), [RTX5090], "cu130"),
        ((13, 0), [T4], "cu130"),
        ((13, 0), [V100], "cu126"),  # CUDA 13 has no Volta, however new the driver
        ((13, 0), [A100, V100], "cu126"),
    ],
)
def test_choice(driver, cards, tag):
    assert cuda.choose_wheel(cuda.Machine(driver, tuple(cards))).tag == tag


@pytest.mark.parametrize(
    ("driver", "cards"), [((11, 8), [A100]), ((12, 6), [B200]), ((13, 0), [V100, B200]), ((12, 4), [(5, 2)])]
)
def test_no_build_fits(driver, cards):
    with pytest.raises(UserError, match=rf"CUDA {driver[0]}\.{driver[1]}.*{cards[0][0]}\.{cards[0][1]}.*DEVICE=cpu"):
        cuda.choose_wheel(cuda.Machine(driver, tuple(cards)))


def test_a_build_by_name():
    assert cuda.wheel_named("12.9").index == "https://www.paddlepaddle.org.cn/packages/stable/cu129/"
    with pytest.raises(UserError, match=r"CUDA=12\.4: .* 13\.0, 12\.9, 12\.6"):
        cuda.wheel_named("12.4")


class NvmlLibrary:
    """What ctypes would load on a machine with an H100 and a T4 under a driver for CUDA 12.9."""

    cards = [H100, T4]

    def nvmlInit_v2(self):
        return 0

    def nvmlShutdown(self):
        return 0

    def nvmlSystemGetCudaDriverVersion_v2(self, version):
        version._obj.value = 12090

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = len(self.cards)

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        handle._obj.value = index + 1

    def nvmlDeviceGetCudaComputeCapability(self, handle, major, minor):
        major._obj.value, minor._obj.value = self.cards[handle.value - 1]


def test_probe(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: NvmlLibrary())
    assert cuda.probe() == cuda.Machine((12, 9), (H100, T4))
    monkeypatch.setattr(NvmlLibrary, "cards", [])
    assert cuda.probe() is None
    monkeypatch.setattr(NvmlLibrary, "nvmlInit_v2", lambda self: 9)  # NVML_ERROR_DRIVER_NOT_LOADED
    assert cuda.probe() is None


@pytest.mark.parametrize(("line", "build"), [("'False'", "cpu"), ("'12.6'", "12.6")])
def test_paddle_build_is_read_without_importing_it(tmp_path, monkeypatch, line, build):
    (tmp_path / "paddle" / "version").mkdir(parents=True)
    (tmp_path / "paddle" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "paddle" / "version" / "__init__.py").write_text(f"nccl_version     = '0'\ncuda_version     = {line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert cuda.paddle_build() == build
