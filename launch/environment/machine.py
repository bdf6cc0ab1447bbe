"""The doctor's checks of the machine: processor, cards, driver, disk, shared memory, ports. No Paddle."""

import os
import platform
import re
import shutil
import socket
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from launch.devices.cards import Card, Driver
from launch.preflight.gpus import check_driver
from launch.preflight.report import Finding

GIB = 2**30


def check_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if not cpuinfo.exists():
        return Finding(True, "CPU", f"{platform.processor() or platform.machine()}, {cores} cores")
    fields = dict(re.findall(r"^(model name|flags)\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE))
    flags = fields.get("flags", "").split()
    widest = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "AVX" if "avx" in flags else ""
    found = f"{fields.get('model name', platform.machine())}, {cores} cores, {widest or 'no AVX'}"
    if widest or platform.machine() not in ("x86_64", "AMD64"):
        return Finding(True, "CPU", found)
    return Finding(
        False,
        "CPU",
        found,
        "Paddle's CPU build needs AVX; a virtual machine must pass the host's processor through",
    )


def check_gpus(cards: list[Card], driver: Driver | None, build: str | None, nvml_installed: bool) -> list[Finding]:
    """Cards and driver, of which nothing is known without nvidia-ml-py. build: as cuda.paddle_build() gives it."""
    if not nvml_installed:
        return [Finding(True, "cards", "not looked for: nvidia-ml-py is not installed")]
    return [check_cards(cards), check_driver(driver, cards, build)]


def check_cards(cards: list[Card]) -> Finding:
    if not cards:
        return Finding(True, "cards", "no NVIDIA cards: recipes can be rehearsed here (make rehearse-...), not run")
    kinds = Counter((card.name, card.memory_bytes, card.compute_capability) for card in cards)
    found = "; ".join(
        f"{count} x {name}, {memory / GIB:.1f} GiB, compute capability {major}.{minor}"
        for (name, memory, (major, minor)), count in kinds.items()
    )
    return Finding(True, "cards", found)


def check_disk(folder: Path) -> Finding:
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
    if not folder.exists():
        return Finding(True, "shared memory", f"no {folder} on this system")
    size = shutil.disk_usage(folder).total / GIB
    found = f"{folder} has {size:.1f} GiB"
    if size >= 1:
        return Finding(True, "shared memory", found)
    return Finding(
        False,
        "shared memory",
        f"{found}: NCCL and data loader workers exchange data there",
        f"in a container: docker run --shm-size=8g; otherwise, as root: mount -o remount,size=8G {folder}",
    )


def check_ports() -> Finding:
    """Whether processes of one run can find each other at a TCP port of this machine."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
    except OSError as error:
        fix = "allow connections on the loopback interface (firewall, sandbox; ip link set lo up)"
        return Finding(False, "ports", f"no connection within 127.0.0.1: {error}", fix)
    return Finding(True, "ports", f"processes can meet on 127.0.0.1 (tried port {port})")


def check_proxy(environment: Mapping[str, str] = os.environ) -> Finding:
    names = [name for name in ("http_proxy", "https_proxy") if environment.get(name)]
    if not names:
        return Finding(True, "proxy", "none set")
    note = "paddle.distributed.launch unsets it in its processes, so download models beforehand"
    return Finding(True, "proxy", f"{' and '.join(names)}: {note}")


def check_ccache() -> Finding:
    path = shutil.which("ccache")
    return Finding(True, "ccache", path or "not installed; it only speeds up building custom operators again")
