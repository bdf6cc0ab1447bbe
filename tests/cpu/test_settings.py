"""The settings made before Paddle is imported: each case in a process of its own, since they are the
process's.
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cpu.test_processor import AVX512, cpuinfo

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = ("MKL_DEBUG_CPU_TYPE", "FLAGS_use_stride_kernel", "OMP_NUM_THREADS")

PREPARE = """
import json, os, sys
from pathlib import Path
from launch.cpu import settings
settings.CPUINFO = Path(sys.argv[1])
settings.available_cores = lambda: 8
try:
    print(settings.prepare(sys.argv[2], processes=int(sys.argv[3])))
except Exception as error:
    print(f"{type(error).__name__}: {error}")
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, json.dumps(dict(os.environ)).encode())
    os._exit(0)
print(os.read(reading, 2**20).decode())
"""


def prepare(cpuinfo_file: Path, cpu_fast: str, processes: int, **environment: str):
    """The line that prepare() gave (or its error), and the three variables as a forked child sees them."""
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", PREPARE, str(cpuinfo_file), cpu_fast, str(processes)],
        env={**clean, **environment}, cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    line, child = done.stdout.splitlines()
    return line, {name: json.loads(child).get(name) for name in VARIABLES}


@pytest.fixture
def machine(tmp_path):
    """A file like /proc/cpuinfo of a machine with that vendor and those flags."""

    def write(vendor: str, flags: str) -> Path:
        path = tmp_path / "cpuinfo"
        path.write_text(cpuinfo(vendor, flags))
        return path

    return write


needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")


@needs_glibc
def test_amd_with_avx512(machine):
    line, variables = prepare(machine("AuthenticAMD", AVX512), "auto", 2)
    assert line == (
        "cpu_fast: MKL_DEBUG_CPU_TYPE=7 (AMD with AVX-512); "
        "FLAGS_use_stride_kernel=0 (whole tensors instead of strided views); "
        "freed memory kept (mallopt); OMP_NUM_THREADS=4 (cores 8, processes 2)"
    )
    assert variables == {"MKL_DEBUG_CPU_TYPE": "7", "FLAGS_use_stride_kernel": "0", "OMP_NUM_THREADS": "4"}


@pytest.mark.parametrize(
    ("vendor", "flags", "said", "cpu_type"),
    [
        ("AuthenticAMD", "avx2", "MKL_DEBUG_CPU_TYPE=5 (AMD with AVX2)", "5"),
        ("GenuineIntel", AVX512, "MKL untouched (A Name)", None),
    ],
)
def test_other_processors_and_more_processes_than_cores(machine, vendor, flags, said, cpu_type):
    line, variables = prepare(machine(vendor, flags), "on", 16)
    assert said in line
    assert variables == {"MKL_DEBUG_CPU_TYPE": cpu_type, "FLAGS_use_stride_kernel": "0", "OMP_NUM_THREADS": "1"}


def test_what_the_user_set_stays(machine):
    own = {"MKL_DEBUG_CPU_TYPE": "5", "FLAGS_use_stride_kernel": "1", "OMP_NUM_THREADS": "3"}
    line, variables = prepare(machine("AuthenticAMD", AVX512), "auto", 2, **own)
    assert variables == own
    for name, value in own.items():
        assert f"{name}={value} (was set)" in line


@pytest.mark.parametrize("cpu_fast", ["off", "0"])
def test_off_changes_nothing(machine, cpu_fast):
    line, variables = prepare(machine("AuthenticAMD", AVX512), cpu_fast, 2)
    assert line == "cpu_fast: off, Paddle as it comes"
    assert variables == {"MKL_DEBUG_CPU_TYPE": None, "FLAGS_use_stride_kernel": None, "OMP_NUM_THREADS": None}


def test_required(machine, tmp_path):
    line, _ = prepare(tmp_path / "none", "required", 1)
    assert line == ("UserError: --cpu_fast required: no x86 processor found in /proc/cpuinfo; use --cpu_fast auto here")
    line, _ = prepare(machine("AuthenticAMD", "avx"), "required", 1)
    assert line == "UserError: --cpu_fast required: A Name has no AVX2; use --cpu_fast auto here"
    assert prepare(tmp_path / "none", "auto", 1)[0].startswith("cpu_fast: MKL untouched (unknown processor); ")


def test_another_word(machine):
    line, _ = prepare(machine("AuthenticAMD", AVX512), "fast", 2)
    assert line == "UserError: --cpu_fast: found 'fast', allowed: auto, on, off, required (or 0/1, false/true)"


def test_too_late():
    code = "import sys; sys.modules['paddle'] = sys; from launch.cpu.settings import prepare; prepare('auto', 1)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "UserError: --cpu_fast: Paddle is imported already" in done.stderr


FAULTS = """
import ctypes, resource, sys
from launch.cpu.settings import prepare
prepare(sys.argv[1], 1)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def use(size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    memory = libc.malloc(size)
    libc.memset(memory, 1, size)
    libc.free(memory)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
use(64 * 2**20)
print(use(64 * 2**20))
"""


@needs_glibc
def test_freed_memory_is_kept():
    """64 MiB taken a second time: without mallopt each of its pages comes anew from the kernel."""

    def faults(cpu_fast: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", FAULTS, cpu_fast], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    assert faults("auto") < 10 < faults("off")
