"""The doctor's checks of the machine, on machines made up."""

import shutil
import socket
from types import SimpleNamespace

import pytest

from launch.devices.cards import Card
from launch.environment import machine

A100 = Card(0, "NVIDIA A100-SXM4-80GB", 80 * 2**30, 79 * 2**30, (8, 0), "GPU-0")
V100 = Card(1, "Tesla V100-SXM2-32GB", 32 * 2**30, 31 * 2**30, (7, 0), "GPU-1")


@pytest.mark.parametrize(
    ("flags", "ok", "shown"),
    [
        ("fpu sse2 avx avx2 avx512f", True, "AVX-512"),
        ("fpu sse2 avx avx2", True, "AVX2"),
        ("fpu sse2", False, "no AVX"),
    ],
)
def test_cpu(tmp_path, monkeypatch, flags, ok, shown):
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: {flags}\n")
    finding = machine.check_cpu(tmp_path / "cpuinfo")
    assert finding.ok is ok and finding.found.startswith("Some CPU, ") and finding.found.endswith(shown)
    assert bool(finding.fix) is not ok


def test_cards_of_a_kind_are_counted():
    assert machine.check_cards([A100, A100, V100]).found == (
        "2 x NVIDIA A100-SXM4-80GB, 80.0 GiB, compute capability 8.0; "
        "1 x Tesla V100-SXM2-32GB, 32.0 GiB, compute capability 7.0"
    )
    assert "rehearsed" in machine.check_cards([]).found


def test_gpus_are_not_judged_without_nvml():
    (finding,) = machine.check_gpus([], None, "12.6", nvml_installed=False)
    assert finding.ok and "nvidia-ml-py is not installed" in finding.found


def disk_of(monkeypatch, **gib):
    usage = SimpleNamespace(**{name: size * machine.GIB for name, size in gib.items()})
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)


def test_disk(tmp_path, monkeypatch):
    disk_of(monkeypatch, free=4.9)
    finding = machine.check_disk(tmp_path)
    assert not finding.ok and "5 GiB free" in finding.found and finding.fix
    disk_of(monkeypatch, free=5)
    assert machine.check_disk(tmp_path).ok


def test_shared_memory(tmp_path, monkeypatch):
    disk_of(monkeypatch, total=1 / 16)  # what docker gives
    finding = machine.check_shared_memory(tmp_path)
    assert not finding.ok and "0.1 GiB" in finding.found and "--shm-size" in finding.fix
    disk_of(monkeypatch, total=1)
    assert machine.check_shared_memory(tmp_path).ok
    assert machine.check_shared_memory(tmp_path / "none").ok


def test_ports(monkeypatch):
    assert machine.check_ports().ok

    def refuse(address):
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(socket, "create_server", refuse)
    finding = machine.check_ports()
    assert not finding.ok and "Operation not permitted" in finding.found and "loopback" in finding.fix


def test_proxy():
    assert machine.check_proxy({"http_proxy": ""}).found == "none set"
    finding = machine.check_proxy({"https_proxy": "http://proxy:3128"})
    assert finding.ok and finding.found.startswith("https_proxy: paddle.distributed.launch unsets it")


def test_the_launcher_still_unsets_proxies():
    """The reason for the line above, read in the installed source."""
    from importlib.util import find_spec
    from pathlib import Path

    package = Path(find_spec("paddle").submodule_search_locations[0])
    source = (package / "distributed" / "launch" / "context" / "args_envs.py").read_text()
    assert 'for proxy_key in ("http_proxy", "https_proxy")' in source and "os.environ.pop(proxy_key)" in source


def test_ccache(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert machine.check_ccache().ok
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/ccache")
    assert machine.check_ccache().found == "/usr/bin/ccache"
