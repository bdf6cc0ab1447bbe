"""Choose the GPU build of Paddle that fits the driver and the cards (not installed on our test machines: no cards).

Paddle publishes one wheel index for each CUDA version. A wheel contains its CUDA libraries. These must fit:
- the driver: CUDA 12.x runs on any driver from 525 on, CUDA 13.x from 580 on
  (https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html);
- the cards: CUDA 13 has dropped all before Turing, Blackwell needs 12.8 or newer
  (https://docs.nvidia.com/cuda/cuda-toolkit-release-notes).
The standard library alone: this decides what is installed, so NVML is called through ctypes.
"""

import ctypes
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from launch.errors import UserError


@dataclass(frozen=True)
class Machine:
    """The facts of NVML: the driver's CUDA version and each card's compute capability."""

    cuda: tuple[int, int]
    capabilities: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Wheel:
    """A GPU build.

    Attributes:
        driver: Its lowest CUDA version.
        cards: Lowest and highest compute capability.
    """

    cuda: str
    driver: tuple[int, int]
    cards: tuple[tuple[int, int], tuple[int, int]]

    def fits(self, machine: Machine) -> bool:
        """Return whether a machine can use the wheel."""
        lowest, highest = self.cards
        return machine.cuda >= self.driver and all(lowest <= card <= highest for card in machine.capabilities)

    @property
    def tag(self) -> str:
        """The tag of the wheel."""
        return "cu" + self.cuda.replace(".", "")

    @property
    def index(self) -> str:
        """The address of the wheel's index."""
        return f"https://www.paddlepaddle.org.cn/packages/stable/{self.tag}/"


# Newest first. Compute capability 6.1 is Pascal, 7.0 Volta (V100), 7.5 Turing (T4), 9.0 Hopper, 10.0 and up
# Blackwell. Volta is left to the oldest build: CUDA 12.9 deprecates it.
WHEELS = (
    Wheel("13.0", driver=(13, 0), cards=((7, 5), (12, 1))),
    Wheel("12.9", driver=(12, 8), cards=((7, 5), (12, 1))),
    Wheel("12.6", driver=(12, 0), cards=((6, 1), (9, 0))),
)


def probe() -> Machine | None:
    """Ask NVML. None without an NVIDIA driver or a card."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    cuda, count = ctypes.c_int(), ctypes.c_int()
    nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda))
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    capabilities = []
    for index in range(count.value):
        handle, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
        nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
        capabilities.append((major.value, minor.value))
    nvml.nvmlShutdown()
    if not capabilities:
        return None
    return Machine((cuda.value // 1000, cuda.value % 1000 // 10), tuple(capabilities))  # 12060 is CUDA 12.6


def wheel_named(cuda: str) -> Wheel:
    """Return the wheel for a CUDA version as the user writes it, "12.6".

    Raises:
        UserError: For any other.
    """
    for wheel in WHEELS:
        if wheel.cuda == cuda:
            return wheel
    raise UserError(f"CUDA={cuda}: Paddle's GPU builds are for CUDA {', '.join(wheel.cuda for wheel in WHEELS)}")


def choose_wheel(machine: Machine) -> Wheel:
    """Return the newest wheel that the driver and every card allow.

    Raises:
        UserError: If there is none.
    """
    for wheel in WHEELS:
        if wheel.fits(machine):
            return wheel
    cards = ", ".join(sorted({f"{major}.{minor}" for major, minor in machine.capabilities}))
    raise UserError(
        f"no GPU build of Paddle fits this machine: driver for CUDA {machine.cuda[0]}.{machine.cuda[1]}, "
        f"cards of compute capability {cards}. Update the driver (CUDA 12.0 or newer; Blackwell: 12.8), "
        "or name a build with make setup-gpu CUDA=12.6, or install for the CPU with make setup DEVICE=cpu."
    )


def paddle_build() -> str | None:
    """Return the installed Paddle's CUDA version, "12.6", or "cpu"; None without Paddle, which is not imported."""
    spec = importlib.util.find_spec("paddle")
    if spec is None or not spec.submodule_search_locations:
        return None
    version_file = Path(spec.submodule_search_locations[0]) / "version" / "__init__.py"
    if not version_file.exists():
        return None
    match = re.search(r"^cuda_version\s*= '(.+)'", version_file.read_text(), re.MULTILINE)
    return "cpu" if match is None or match[1] == "False" else match[1]
