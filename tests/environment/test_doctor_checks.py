"""The doctor on broken environments: each fault has its line and its cure."""

import fcntl
import re
import shutil
import socket
import sys
from types import SimpleNamespace

import pytest
from packaging.markers import Marker

from launch.devices.cards import DetectedCard
from launch.environment import doctor_checks, setup
from launch.environment.pins import REQUIREMENTS, read_lock

A100 = DetectedCard(0, "NVIDIA A100-SXM4-80GB", 80 * 2**30, 79 * 2**30, (8, 0), "GPU-0")
V100 = DetectedCard(1, "Tesla V100-SXM2-32GB", 32 * 2**30, 31 * 2**30, (7, 0), "GPU-1")


@pytest.fixture
def sound():
    """What is installed where nothing is wrong: the lock."""
    pins = read_lock(REQUIREMENTS / "cpu.lock")
    return {pin.name: pin.version for pin in pins if not pin.marker or Marker(pin.marker).evaluate()}


@pytest.mark.parametrize("version", [(3, 10, 0), (3, 12, 9), (3, 9, 18), (3, 13, 0)])
def test_python(version):
    finding = doctor_checks.check_python(version)
    assert finding.ok is ((3, 10) <= version < (3, 13))
    assert finding.found.startswith(".".join(map(str, version))) and ("make setup" in finding.fix) is not finding.ok


def test_a_sound_environment(sound):
    finding = doctor_checks.check_lock(sound)
    assert finding.ok and finding.found == f"all {len(sound)} as in requirements/cpu.lock"
    (finding,) = doctor_checks.check_clashes(sound)
    assert finding.ok
    del sound["paddlepaddle"]
    finding = doctor_checks.check_lock(sound | {"paddlepaddle-gpu": "3.3.1"})
    assert finding.ok and "gpu.lock" in finding.found
    assert doctor_checks.installed_packages()["typing-extensions"], "typing_extensions, as it calls itself"


def test_other_and_missing_versions_are_named(sound, monkeypatch):
    installed = {**sound, "rich": "1.0"}
    del installed["psutil"]
    finding = doctor_checks.check_lock(installed)
    assert not finding.ok
    assert f"2 of {len(sound)} not as in" in finding.found
    assert f"rich 1.0 (lock: {sound['rich']})" in finding.found and "psutil missing" in finding.found
    assert "make setup" in finding.fix or ".venv/bin/python" in finding.fix
    monkeypatch.setitem(sys.modules, "packaging.markers", None)
    finding = doctor_checks.check_lock({"pip": "23.0"})
    assert not finding.ok and "not installed" in finding.found


def test_the_cure_depends_on_where_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor_checks, "VENV", tmp_path / ".venv")
    assert doctor_checks.check_lock({}).fix == "make setup"
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "setup.json").write_text("{}")
    assert ".venv/bin/python" in doctor_checks.check_lock({}).fix
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert doctor_checks.check_lock({}).fix == "rm -rf .venv && make setup"


def test_while_setup_is_at_work_the_cure_is_to_wait(sound, tmp_path, monkeypatch):
    monkeypatch.setattr(setup, "LOCK", tmp_path / "setup.lock")
    with open(setup.LOCK, "a") as lock:
        assert "wait" not in doctor_checks.check_lock({}).fix
        fcntl.flock(lock, fcntl.LOCK_EX)
        del sound["pip"]
        told = [doctor_checks.check_lock({}), *doctor_checks.check_clashes(sound)]
        assert [finding.fix.partition(":")[0] for finding in told] == ["wait", "wait"]


@pytest.mark.parametrize(
    ("change", "subject", "consequence", "cure"),
    [
        ({"aistudio-sdk": "0.3.8"}, "aistudio-sdk", "paddlenlp does not import", "pip install aistudio-sdk==0.2.6"),
        ({"protobuf": "7.35.1"}, "protobuf", "add_hparams", "pip install protobuf==4.25.8"),
        ({"numpy": "2.2.6"}, "numpy", "1.26.4", "pip install numpy==1.26.4"),
        ({"scipy": "1.14.1", "paddlepaddle": "2.6.2"}, "scipy", "zlib.error", "pip install paddlepaddle==3.3.1"),
        ({"paddlepaddle": "3.1.1"}, "paddlepaddle", "pipeline", "pip install paddlepaddle==3.3.1"),
        ({"paddlepaddle-gpu": "3.3.1"}, "paddlepaddle-gpu", "overwrites", "make setup"),
        ({"pip": ""}, "pip", "import pip", "-m ensurepip"),
        ({"protobuf": "7.0.0", "numpy": "2.0.0"}, "protobuf numpy", "add_hparams", "pip install protobuf==4.25.8"),
    ],
)
def test_each_known_clash(sound, change, subject, consequence, cure):
    installed = {name: version for name, version in {**sound, **change}.items() if version}
    findings = doctor_checks.check_clashes(installed)
    assert [finding.subject for finding in findings] == subject.split()
    assert not any(finding.ok for finding in findings)
    assert doctor_checks.check_clashes({"numpy": "2.4.6", "protobuf": "7.0.0"}) == [], "an interpreter for other things"
    assert consequence in findings[0].found
    assert cure in findings[0].fix or (cure == "make setup" and ".venv/bin/python" in findings[0].fix)


@pytest.mark.parametrize(
    ("flags", "ok", "shown"),
    [
        ("fpu sse2 avx avx2 avx512f", True, "AVX-512"),
        ("fpu sse2 avx avx2", True, "AVX2"),
        ("fpu sse2", False, "no AVX"),
    ],
)
def test_cpu(tmp_path, monkeypatch, flags, ok, shown):
    monkeypatch.setattr(doctor_checks.platform, "machine", lambda: "x86_64")
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: {flags}\n")
    finding = doctor_checks.check_cpu(tmp_path / "cpuinfo")
    assert finding.ok is ok and re.fullmatch(rf"Some CPU with \d+ cores? and {shown}", finding.found)
    assert bool(finding.fix) is not ok


def test_cards_ports_and_proxy(monkeypatch):
    assert doctor_checks.check_cards([A100, A100, V100]).found == (
        "2 x NVIDIA A100-SXM4-80GB, 80.0 GiB, compute capability 8.0; "
        "1 x Tesla V100-SXM2-32GB, 32.0 GiB, compute capability 7.0"
    )
    assert "rehearsed" in doctor_checks.check_cards([]).found
    (finding,) = doctor_checks.check_gpus([], None, "12.6", nvml_installed=False)
    assert finding.ok and "nvidia-ml-py is not installed" in finding.found
    assert doctor_checks.check_ports().ok

    def refuse(address):
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(socket, "create_server", refuse)
    finding = doctor_checks.check_ports()
    assert not finding.ok and "Operation not permitted" in finding.found and "loopback" in finding.fix
    assert doctor_checks.check_proxy({"http_proxy": ""}).found == "none set"
    finding = doctor_checks.check_proxy({"https_proxy": "http://proxy:3128"})
    assert finding.ok and finding.found.startswith("https_proxy: paddle.distributed.launch unsets it")


def disk_of(monkeypatch, **gib):
    usage = SimpleNamespace(**{name: size * doctor_checks.GIB for name, size in gib.items()})
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)


def test_disk_and_shared_memory(tmp_path, monkeypatch):
    for check, words, bad, good, said in (
        (doctor_checks.check_disk, "free", 4.9, 5, ("5 GiB free", "")),
        (doctor_checks.check_shared_memory, "total", 1 / 16, 1, ("0.1 GiB", "--shm-size")),  # what docker gives
    ):
        disk_of(monkeypatch, **{words: bad})
        finding = check(tmp_path)
        assert not finding.ok and said[0] in finding.found and finding.fix and said[1] in finding.fix
        disk_of(monkeypatch, **{words: good})
        assert check(tmp_path).ok
    assert doctor_checks.check_shared_memory(tmp_path / "none").ok
