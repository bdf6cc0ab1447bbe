"""Does the NVIDIA driver run the CUDA version that the installed Paddle was built for, and that build the cards?"""

from launch.devices import cuda
from launch.devices.cards import Card, Driver
from launch.errors import UserError
from launch.preflight.report import Finding


def check_driver(driver: Driver | None, cards: list[Card], build: str | None) -> Finding:
    """Whether the installed Paddle is one for the driver and the cards. build: as cuda.paddle_build() gives it."""
    if driver is None or not cards:
        if build in (None, "cpu"):
            return Finding(True, "driver", "no NVIDIA driver, and none needed by Paddle's CPU build")
        fix = "make setup DEVICE=cpu; or install the NVIDIA driver, in a container: docker run --gpus all"
        return Finding(False, "driver", f"no NVIDIA driver, but Paddle is the build for CUDA {build}", fix)
    machine = cuda.Machine(driver.cuda, tuple(card.compute_capability for card in cards))
    found = f"{driver.version}, for CUDA up to {driver.cuda[0]}.{driver.cuda[1]}; Paddle is the "
    found += "CPU build" if build in (None, "cpu") else f"build for CUDA {build}"
    if any(wheel.cuda == build and wheel.fits(machine) for wheel in cuda.WHEELS):
        return Finding(True, "driver", found)
    try:
        return Finding(False, "driver", found, f"make setup-gpu CUDA={cuda.choose_wheel(machine).cuda}")
    except UserError as error:
        return Finding(False, "driver", found, str(error))
