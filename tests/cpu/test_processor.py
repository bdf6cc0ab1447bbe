"""What is read from /proc/cpuinfo, with texts of machines that we do not have."""

import pytest

from launch.cpu import settings
from launch.cpu.settings import mkl_debug_cpu_type, parse_cpuinfo
from launch.devices import cpu_operators

AVX512 = "avx2 avx512f avx512bw avx512dq avx512vl"


def cpuinfo(vendor: str, flags: str) -> str:
    """Two processors, as Linux on x86 writes them."""
    described = f"vendor_id\t: {vendor}\nmodel name\t: A Name\nflags\t\t: fpu sse {flags}\npower management:\n\n"
    return "".join(f"processor\t: {number}\n{described}" for number in range(2))


@pytest.mark.parametrize(
    ("vendor", "flags", "cpu_type"),
    [
        ("AuthenticAMD", AVX512, "7"),
        ("AuthenticAMD", "avx2", "5"),
        ("AuthenticAMD", "avx2 avx512f avx512bw avx512dq", "5"),  # one of the four missing
        ("AuthenticAMD", "avx", None),
        ("GenuineIntel", AVX512, None),
        ("HygonGenuine", "avx2", None),
    ],
)
def test_kernels_of_mkl_by_processor(vendor, flags, cpu_type):
    assert mkl_debug_cpu_type(parse_cpuinfo(cpuinfo(vendor, flags))) == cpu_type


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (f"{AVX512} avx512_bf16", "the operators of a CPU are not built: make custom-ops"),
        (f"{AVX512} amx_bf16", "the operators of a CPU are not built: make custom-ops"),
        (AVX512, "this processor has neither AVX512-bf16 nor AMX"),
        ("avx2 avx512_bf16", "this processor has neither AVX512-bf16 nor AMX"),
    ],
)
def test_what_keeps_a_processor_from_bfloat16(monkeypatch, flags, reason):
    monkeypatch.setattr(cpu_operators, "this_processor", lambda: parse_cpuinfo(cpuinfo("AuthenticAMD", flags)))
    assert cpu_operators.bfloat16_obstacle() == reason


def test_fields_of_the_first_processor():
    found = parse_cpuinfo(cpuinfo("AuthenticAMD", "avx2"))
    assert (found.vendor, found.name) == ("AuthenticAMD", "A Name")
    assert found.flags == {"fpu", "sse", "avx2"}


def test_nothing_is_said_of_other_processors(monkeypatch, tmp_path):
    for text in ("", "processor : 0\nBogoMIPS : 50.00\nFeatures : fp asimd\nCPU implementer : 0x41\n"):
        assert parse_cpuinfo(text) is None
    assert mkl_debug_cpu_type(None) is None
    monkeypatch.setattr(settings, "CPUINFO", tmp_path / "cpuinfo")
    assert settings.this_processor() is None
