"""The doctor's checks: Python and its packages against the lock and against known clashes, then the machine.

Nothing is imported to be checked: versions are read from the packages' metadata. Works without any package but
`packaging`, which evaluates the lock's conditions and is itself in the lock. No Paddle.
"""

import importlib.metadata
import os
import platform
import re
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.cpu import matmul
from launch.devices.cards import DetectedCard, Driver
from launch.environment import setup
from launch.environment.pins import REQUIREMENTS, read_lock
from launch.preflight.gpus import check_driver
from launch.preflight.report import Finding

VENV = REQUIREMENTS.parent / ".venv"
GIB = 2**30
OLDEST, NEWEST = (3, 10), (3, 12)


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Check the version of Python."""
    found = f"{'.'.join(map(str, version))}, {sys.executable}"
    if OLDEST <= version[:2] <= NEWEST:
        return Finding(True, "Python", found)
    return Finding(
        False,
        "Python",
        f"{found}; the lock is for 3.10, 3.11 and 3.12 (3.13 has no wheel of tool-helpers)",
        "make setup, which looks for one; or name it: make setup PYTHON=/path/to/python3.11",
    )


def installed_packages() -> dict[str, str]:
    """Return the normalised name (PEP 503) and version of every package that this interpreter sees."""
    packages = {}
    for distribution in importlib.metadata.distributions():
        if distribution.metadata["Name"]:  # a folder that an interrupted installation left behind has none
            packages.setdefault(re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower(), distribution.version)
    return packages


def check_lock(installed: Mapping[str, str]) -> Finding:
    """Check that every package of the lock that this machine needs is installed in the lock's version."""
    name = "gpu.lock" if "paddlepaddle-gpu" in installed else "cpu.lock"
    try:
        from packaging.markers import Marker
    except ImportError:
        return Finding(False, "packages", f"those of requirements/{name} are not installed here", _cure())
    needed = [pin for pin in read_lock(REQUIREMENTS / name) if not pin.marker or Marker(pin.marker).evaluate()]
    wrong = [
        f"{pin.name} {installed[pin.name]} (lock: {pin.version})" if pin.name in installed else f"{pin.name} missing"
        for pin in needed
        if installed.get(pin.name) != pin.version
    ]
    if not wrong:
        return Finding(True, "packages", f"all {len(needed)} as in requirements/{name}")
    shown = ", ".join(wrong[:5]) + (", ..." if len(wrong) > 5 else "")
    return Finding(False, "packages", f"{len(wrong)} of {len(needed)} not as in requirements/{name}: {shown}", _cure())


def _cure() -> str:
    if setup.is_running():
        return "wait: make setup is at work on .venv now; build/setup.log has how far it is"
    if os.path.realpath(sys.prefix) == os.path.realpath(VENV):
        return "rm -rf .venv && make setup"
    if (VENV / "setup.json").exists():
        return f"use the environment that is there: .venv/bin/python instead of {sys.executable}"
    return "make setup"


@dataclass(frozen=True)
class Clash:
    """Versions that install together and do not work together.

    Attributes:
        occurs: From a function that gives a package's version as a tuple of numbers, () if it is not installed.
        cure: Packages to install in the lock's version; "" if only a fresh environment helps.
    """

    package: str
    occurs: Callable[[Callable[[str], tuple[int, ...]]], bool]
    consequence: str
    cure: str = ""


CLASHES = (
    Clash(
        "aistudio-sdk",
        lambda version: version("aistudio-sdk") >= (0, 3),
        "paddlenlp does not import: `download` has left aistudio_sdk.hub in 0.3.0",
        cure="aistudio-sdk",
    ),
    Clash(
        "protobuf",
        lambda version: version("protobuf") >= (7,),
        "visualdl fails in add_hparams (Expected an int, got a boolean) with protobuf 7",
        cure="protobuf",
    ),
    Clash(
        "numpy",
        lambda version: version("numpy") >= (2,),
        "paddlenlp, tool_helpers and fast_dataindex are made for numpy up to 1.26.4",
        cure="numpy",
    ),
    Clash(
        "scipy",
        lambda version: version("scipy") >= (1, 14) and () < version("paddlepaddle") < (3,),
        "zlib.error: inconsistent stream state: scipy 1.14 and newer meet the zlib of Paddle 2's library",
        cure="paddlepaddle",
    ),
    Clash(
        "paddlepaddle",
        lambda version: (3, 0) <= version("paddlepaddle") < (3, 2),
        "pipeline parallel times out over gloo with Paddle 3.0 and 3.1",
        cure="paddlepaddle",
    ),
    Clash(
        "paddlepaddle-gpu",
        lambda version: bool(version("paddlepaddle") and version("paddlepaddle-gpu")),
        "installed beside paddlepaddle: both write the folder paddle/, and one overwrites the other's files",
    ),
    Clash(
        "pip",
        lambda version: not version("pip"),
        "paddlenlp does `import pip`, and an environment made by uv has none",
        cure="pip",
    ),
)


def check_clashes(installed: Mapping[str, str]) -> list[Finding]:
    """Return one finding for each clash that occurs; a single good one if none does.

    Return [] without paddlenlp: then this interpreter is for something else, and nothing in it is wrong.
    """
    if "paddlenlp" not in installed:
        return []

    def version(name: str) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", installed.get(name, ""))[:3])

    findings = []
    for clash in CLASHES:
        if clash.occurs(version):
            found = f"{clash.consequence} (here: {installed.get(clash.package, 'none')})"
            findings.append(Finding(False, clash.package, found, _reinstall(clash.cure)))
    names = ", ".join(clash.package for clash in CLASHES)
    return findings or [Finding(True, "clashes", f"none of those known: {names}")]


def _reinstall(name: str) -> str:
    if not name or setup.is_running():
        return _cure()
    if name == "pip":
        return f"{sys.executable} -m ensurepip"
    locked = next(pin.version for pin in read_lock(REQUIREMENTS / "cpu.lock") if pin.name == name)
    return f"{sys.executable} -m pip install {name}=={locked}"


def check_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> Finding:
    """Check the CPU."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if not cpuinfo.exists():
        return Finding(True, "CPU", f"{platform.processor() or platform.machine()}, {cores} cores")
    fields = dict(re.findall(r"^(model name|flags)\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE))
    flags = fields.get("flags", "").split()
    widest = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "AVX" if "avx" in flags else ""
    found = f"{fields.get('model name', platform.machine())} with {cores} cores and {widest or 'no AVX'}"
    if widest or platform.machine() not in ("x86_64", "AMD64"):
        return Finding(True, "CPU", found)
    return Finding(
        False,
        "CPU",
        found,
        "Paddle's CPU build needs AVX; a virtual machine must pass the host's processor through",
    )


def check_products() -> Finding:
    """Measure this machine's matrix product where that was not done yet."""
    flops = matmul.measure(VENV / "bin" / "python")
    if flops:
        return Finding(
            True, "products", f"{flops / 1e9:,.0f} GFLOP/s in float32, by which runs on this CPU are planned"
        )
    return Finding(True, "products", "not measured: runs on this CPU are planned with 200 GFLOP/s a process")


def check_gpus(
    cards: list[DetectedCard], driver: Driver | None, build: str | None, nvml_installed: bool
) -> list[Finding]:
    """Check cards and driver, of which nothing is known without nvidia-ml-py.

    build: as cuda.paddle_build() gives it.
    """
    if not nvml_installed:
        return [Finding(True, "cards", "not looked for: nvidia-ml-py is not installed")]
    return [check_cards(cards), check_driver(driver, cards, build)]


def check_cards(cards: list[DetectedCard]) -> Finding:
    """Check the cards."""
    if not cards:
        return Finding(True, "cards", "no NVIDIA cards: recipes can be rehearsed here (make rehearse-...), not run")
    kinds = Counter((card.name, card.memory_bytes, card.compute_capability) for card in cards)
    found = "; ".join(
        f"{count} x {name}, {memory / GIB:.1f} GiB, compute capability {major}.{minor}"
        for (name, memory, (major, minor)), count in kinds.items()
    )
    return Finding(True, "cards", found)


def check_disk(folder: Path) -> Finding:
    """Check the free disk space."""
    free = shutil.disk_usage(folder).free / GIB
    found = f"{free:.0f} GiB free in {folder}"
    if free >= 5:
        return Finding(True, "disk", found)
    return Finding(
        False,
        "disk",
        f"{found}; .venv takes 1.8 and the demo 1",
        "free some, or move the repository to a larger disk",
    )


def check_shared_memory(folder: Path = Path("/dev/shm")) -> Finding:
    """Check the size of shared memory."""
    if not folder.exists():
        return Finding(True, "shared memory", f"no {folder} on this system")
    size = shutil.disk_usage(folder).total / GIB
    found = f"{folder} has {size:.1f} GiB of memory"
    if size >= 1:
        return Finding(True, "shared memory", found)
    return Finding(
        False,
        "shared memory",
        f"{found}: NCCL and data loader workers exchange data there",
        f"in a container: docker run --shm-size=8g; otherwise, as root: mount -o remount,size=8G {folder}",
    )


def check_ports() -> Finding:
    """Check that processes of one run can find each other at a TCP port of this machine."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
    except OSError as error:
        fix = "allow connections on the loopback interface (firewall, sandbox; ip link set lo up)"
        return Finding(False, "ports", f"no connection within 127.0.0.1: {error}", fix)
    return Finding(True, "ports", f"processes can meet on 127.0.0.1 (tried port {port})")


def check_proxy(environment: Mapping[str, str] = os.environ) -> Finding:
    """Check the proxy."""
    names = [name for name in ("http_proxy", "https_proxy") if environment.get(name)]
    if not names:
        return Finding(True, "proxy", "none set")
    note = "paddle.distributed.launch unsets it in its processes, so download models beforehand"
    return Finding(True, "proxy", f"{' and '.join(names)}: {note}")


def check_ccache() -> Finding:
    """Check for ccache."""
    path = shutil.which("ccache")
    return Finding(True, "ccache", path or "not installed; it only speeds up building custom operators again")
