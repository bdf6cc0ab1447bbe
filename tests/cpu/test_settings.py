"""The settings made before Paddle is imported: what is chosen for which machine, and that they have an effect."""

import os
import platform
import subprocess
import sys

import pytest

from launch.cpu import settings
from launch.errors import UserError
from tests.cpu.test_processor import AVX512, cpuinfo
from tests.store import ROOT

AMD, INTEL = "AuthenticAMD", "GenuineIntel"
MKL, STRIDES, THREADS = VARIABLES = ("MKL_DEBUG_CPU_TYPE", "FLAGS_use_stride_kernel", "OMP_NUM_THREADS")

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """machine(vendor, flags, variables): a processor with 8 cores, and the environment that prepare() sees."""

    def pretend(vendor: str, flags: str, **environment: str) -> dict[str, str]:
        file = tmp_path / "cpuinfo"
        file.write_text(cpuinfo(vendor, flags))
        monkeypatch.setattr(settings, "CPUINFO", file)
        monkeypatch.setattr(settings, "available_cores", lambda: 8)
        monkeypatch.setattr(settings, "keep_freed_memory", lambda: True)
        monkeypatch.setattr(os, "environ", environment)
        return environment

    return pretend


@pytest.mark.parametrize(
    ("vendor", "flags", "cpu_fast", "processes", "said", "variables"),
    [
        (AMD, AVX512, "auto", 2, "MKL_DEBUG_CPU_TYPE=7 (AMD with AVX-512)", {MKL: "7", STRIDES: "0", THREADS: "4"}),
        (AMD, "avx2", "on", 1, "MKL_DEBUG_CPU_TYPE=5 (AMD with AVX2)", {MKL: "5", STRIDES: "0", THREADS: "8"}),
        (INTEL, AVX512, "auto", 16, "MKL untouched (A Name)", {STRIDES: "0", THREADS: "1"}),
        (AMD, AVX512, "off", 2, "cpu_fast: off, Paddle as it comes", {}),
        (AMD, AVX512, "0", 2, "cpu_fast: off, Paddle as it comes", {}),
    ],
)
def test_what_is_chosen_for_a_machine(machine, vendor, flags, cpu_fast, processes, said, variables):
    environment = machine(vendor, flags)
    line = settings.prepare(cpu_fast, processes)
    assert said in line and environment == variables
    if variables:
        assert "; FLAGS_use_stride_kernel=0 (whole tensors instead of strided views); " in line
        assert f"freed memory kept (mallopt); OMP_NUM_THREADS={variables[THREADS]} (cores 8, processes" in line


def test_what_the_user_set_stays(machine):
    own = {MKL: "5", STRIDES: "1", THREADS: "3"}
    environment = machine(AMD, AVX512, **own)
    line = settings.prepare("auto", 2)
    assert environment == own
    assert all(f"{name}={value} (was set)" in line for name, value in own.items())


def test_required_and_refused(machine, monkeypatch, tmp_path):
    machine(AMD, "avx")
    with pytest.raises(UserError, match="--cpu_fast required: A Name has no AVX2; use --cpu_fast auto here"):
        settings.prepare("required", 1)
    with pytest.raises(UserError, match="--cpu_fast: found 'fast', allowed: auto, on, off, required"):
        settings.prepare("fast", 2)
    monkeypatch.setattr(settings, "CPUINFO", tmp_path / "none")
    with pytest.raises(UserError, match="--cpu_fast required: no x86 processor found in /proc/cpuinfo; use --cpu_fast"):
        settings.prepare("required", 1)
    assert settings.prepare("auto", 1).startswith("cpu_fast: MKL untouched (unknown processor); ")
    monkeypatch.setattr(settings, "keep_freed_memory", lambda: False)
    assert "malloc untouched (not glibc)" in settings.prepare("auto", 1)
    machine(AMD, AVX512)
    monkeypatch.setattr(settings, "keep_freed_memory", lambda: False)
    with pytest.raises(UserError, match="--cpu_fast required: malloc can be set with glibc only"):
        settings.prepare("required", 1)
    monkeypatch.setitem(sys.modules, "paddle", sys)
    with pytest.raises(UserError, match="--cpu_fast: Paddle is imported already"):
        settings.prepare("auto", 1)


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


@pytest.mark.parametrize(("user", "threads"), [(None, "4"), ("1", "1"), ("3", "3")])
def test_the_launchers_one_thread_is_not_the_users_wish(user, threads):
    """A launcher that sets the variable for its rank, as importing Paddle does, and the rank's settings."""
    rank = "from launch.cpu import settings; settings.available_cores = lambda: 8; settings._prepare_threads(2); "
    rank += "import os; print(os.environ['OMP_NUM_THREADS'])"
    launcher = "import os, subprocess, sys; os.environ.setdefault('OMP_NUM_THREADS', '1'); "
    launcher += (
        "os.environ['PADDLE_TRAINER_ID'] = '0'; sys.exit(subprocess.run([sys.executable, *sys.argv[1:]]).returncode)"
    )
    environment = {name: value for name, value in os.environ.items() if name != THREADS}
    environment |= {THREADS: user} if user else {}
    command = [sys.executable, "-c", launcher, "-c", rank]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{threads}\n"), done.stderr
