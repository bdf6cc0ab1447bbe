"""What this machine's processor can do, as Linux tells it in /proc/cpuinfo. Knows nothing of Paddle."""

from dataclasses import dataclass
from pathlib import Path

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
        return self.vendor == "AuthenticAMD"

    @property
    def has_avx2(self) -> bool:
        return "avx2" in self.flags

    @property
    def has_avx512(self) -> bool:
        return self.flags >= AVX512


def parse(cpuinfo: str) -> Processor | None:
    """The first processor in the text of /proc/cpuinfo; None if it is not an x86 (ARM's text differs)."""
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
    """The processor we run on; None where the system does not say (other than Linux, other than x86)."""
    try:
        return parse(CPUINFO.read_text())
    except OSError:
        return None
