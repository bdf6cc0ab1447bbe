"""Settings that make Paddle fast on a CPU, to be made before `import paddle`; never imports it itself.

    print(prepare("auto", processes=2))
    import paddle

They depend on the processor, as Linux describes it in /proc/cpuinfo. docs/cpu-speed.md says what they do and what they
gain.
"""

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from launch.config.flag import switch
from launch.errors import UserError

CPUINFO = Path("/proc/cpuinfo")

# The four parts of AVX-512 that MKL's kernels for it use (those of Intel's Skylake server).
AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})


@dataclass(frozen=True)
class Processor:
    """Vendor as CPUID has it ("AuthenticAMD", "GenuineIntel"), marketing name, feature flags."""

    vendor: str
    name: str
    flags: frozenset[str]

    @property
    def is_amd(self) -> bool:
        """Whether the processor is AMD's."""
        return self.vendor == "AuthenticAMD"

    @property
    def has_avx2(self) -> bool:
        """Whether the processor has AVX2."""
        return "avx2" in self.flags

    @property
    def has_avx512(self) -> bool:
        """Whether the processor has AVX-512."""
        return self.flags >= AVX512

    @property
    def has_bfloat16(self) -> bool:
        """Whether the processor multiplies matrices in bfloat16."""
        return self.has_avx512 and not self.flags.isdisjoint({"avx512_bf16", "amx_bf16"})


def parse_cpuinfo(cpuinfo: str) -> Processor | None:
    """Return the first processor in the text of /proc/cpuinfo; None if it is not an x86 (ARM's text differs)."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    if "vendor_id" not in fields or "flags" not in fields:
        return None
    return Processor(
        vendor=fields["vendor_id"],
        name=fields.get("model name", fields["vendor_id"]),
        flags=frozenset(fields["flags"].split()),
    )


def this_processor() -> Processor | None:
    """Return the processor of this machine; None where the system does not say (other than Linux, other than x86)."""
    try:
        return parse_cpuinfo(CPUINFO.read_text())
    except OSError:
        return None


# mallopt's parameters, from glibc's malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


def mkl_debug_cpu_type(processor: Processor | None) -> str | None:
    """Return the kernels for Paddle's MKL, as MKL_DEBUG_CPU_TYPE; None where MKL chooses well by itself.

    Paddle 3.3 bundles an MKL of 2019, which gives its slowest kernels to every processor that is not Intel's. Type 7
    names its AVX-512 kernels, type 5 the AVX2 ones. The variable is not documented by Intel, and newer MKL ignore it.
    """
    if processor is None or not processor.is_amd:
        return None
    if processor.has_avx512:
        return "7"
    return "5" if processor.has_avx2 else None


def prepare(cpu_fast: str, processes: int) -> str:
    """Set up this process and its children before any of them imports Paddle.

    Variables that are set already are left as they are. Returns one line that says what was chosen and why.

    Args:
        cpu_fast: "off" changes nothing; "auto" and "on" set what this machine has a use for; "required" insists on
            all.
        processes: How many training processes share this machine's cores.

    Raises:
        UserError: For another value of cpu_fast, when Paddle is imported already, or when something required is not
            to be had here.
    """
    try:
        choice = switch(cpu_fast)
    except ValueError as error:
        raise UserError(f"--cpu_fast: {error}") from None
    if choice == "off":
        return "cpu_fast: off, Paddle as it comes"
    if "paddle" in sys.modules:
        raise UserError("--cpu_fast: Paddle is imported already and has read its settings; call prepare() before that")
    chosen = [
        _prepare_mkl(this_processor(), choice == "required"),
        _prepare_variable("FLAGS_use_stride_kernel", "0", "whole tensors instead of strided views"),
        _prepare_malloc(choice == "required"),
        _prepare_threads(processes),
    ]
    return "cpu_fast: " + "; ".join(chosen)


def _prepare_mkl(processor: Processor | None, required: bool) -> str:
    if processor is None:
        if required:
            raise UserError("--cpu_fast required: no x86 processor found in /proc/cpuinfo; use --cpu_fast auto here")
        return "MKL untouched (unknown processor)"
    if processor.is_amd and not processor.has_avx2 and required:
        raise UserError(f"--cpu_fast required: {processor.name} has no AVX2; use --cpu_fast auto here")
    cpu_type = mkl_debug_cpu_type(processor)
    if cpu_type is None:
        return f"MKL untouched ({processor.name})"
    return _prepare_variable("MKL_DEBUG_CPU_TYPE", cpu_type, "AMD with " + ("AVX-512" if cpu_type == "7" else "AVX2"))


def _prepare_variable(name: str, value: str, why: str) -> str:
    found = os.environ.setdefault(name, value)
    return f"{name}={value} ({why})" if found == value else f"{name}={found} (was set)"


def _prepare_malloc(required: bool) -> str:
    if keep_freed_memory():
        return "freed memory kept (mallopt)"
    if required:
        raise UserError("--cpu_fast required: malloc can be set with glibc only; use --cpu_fast auto here")
    return "malloc untouched (not glibc)"


def keep_freed_memory() -> bool:
    """Make malloc keep what is freed: fresh pages cost the kernel's clearing of each. False: not glibc."""
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(M_TOP_PAD, 256 * 2**20)
    return True


def _prepare_threads(processes: int) -> str:
    """Share the cores among the processes.

    Where it is not set, Paddle sets it to one thread: also in the launcher, from which ranks inherit that.
    """
    cores = available_cores()
    if _set_by_launcher():
        del os.environ["OMP_NUM_THREADS"]
    return _prepare_variable("OMP_NUM_THREADS", threads_per_rank(processes), f"cores {cores}, processes {processes}")


def _set_by_launcher() -> bool:
    """Return True if OMP_NUM_THREADS of this rank is not the user's: the launcher was started without it."""
    try:
        started_with = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    named = any(variable.startswith(b"OMP_NUM_THREADS=") for variable in started_with)
    return "PADDLE_TRAINER_ID" in os.environ and "OMP_NUM_THREADS" in os.environ and not named


def available_cores() -> int:
    """Return the cores that this process may run on: its affinity mask where the system has one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_per_rank(ranks: int) -> str:
    """Return the value of OMP_NUM_THREADS for each of `ranks` ranks on a CPU."""
    return str(max(1, available_cores() // ranks))
