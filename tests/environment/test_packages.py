"""The doctor on broken environments: each fault has its line and its cure."""

import fcntl
import sys

import pytest
from packaging.markers import Marker

from launch.environment import packages, setup
from launch.environment.pins import REQUIREMENTS, read_lock


@pytest.fixture
def sound():
    """What is installed where nothing is wrong: the lock."""
    pins = read_lock(REQUIREMENTS / "cpu.lock")
    return {pin.name: pin.version for pin in pins if not pin.marker or Marker(pin.marker).evaluate()}


@pytest.mark.parametrize(
    ("version", "ok"), [((3, 10, 0), True), ((3, 12, 9), True), ((3, 9, 18), False), ((3, 13, 0), False)]
)
def test_python(version, ok):
    finding = packages.check_python(version)
    assert finding.ok is ok
    assert finding.found.startswith(".".join(map(str, version)))
    assert ("make setup" in finding.fix) is not ok


def test_a_sound_environment(sound):
    finding = packages.check_lock(sound)
    assert finding.ok and finding.found == f"all {len(sound)} as in requirements/cpu.lock"
    (finding,) = packages.check_clashes(sound)
    assert finding.ok


def test_other_and_missing_versions_are_named(sound):
    installed = {**sound, "rich": "1.0"}
    del installed["psutil"]
    finding = packages.check_lock(installed)
    assert not finding.ok
    assert f"2 of {len(sound)} not as in" in finding.found
    assert f"rich 1.0 (lock: {sound['rich']})" in finding.found and "psutil missing" in finding.found
    assert "make setup" in finding.fix or ".venv/bin/python" in finding.fix


def test_the_gpu_build_is_held_against_the_gpu_lock(sound):
    del sound["paddlepaddle"]
    finding = packages.check_lock({**sound, "paddlepaddle-gpu": "3.3.1"})
    assert finding.ok and "gpu.lock" in finding.found


def test_where_nothing_is_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "packaging.markers", None)
    finding = packages.check_lock({"pip": "23.0"})
    assert not finding.ok and "not installed" in finding.found


def test_the_cure_depends_on_where_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "VENV", tmp_path / ".venv")
    assert packages.check_lock({}).fix == "make setup"
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "setup.json").write_text("{}")
    assert ".venv/bin/python" in packages.check_lock({}).fix
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert packages.check_lock({}).fix == "rm -rf .venv && make setup"


def test_while_setup_is_at_work_the_cure_is_to_wait(sound, tmp_path, monkeypatch):
    monkeypatch.setattr(setup, "LOCK", tmp_path / "setup.lock")
    with open(setup.LOCK, "a") as lock:
        assert "wait" not in packages.check_lock({}).fix
        fcntl.flock(lock, fcntl.LOCK_EX)
        del sound["pip"]
        told = [packages.check_lock({}), *packages.check_clashes(sound)]
        assert [finding.fix.partition(":")[0] for finding in told] == ["wait", "wait"]


@pytest.mark.parametrize(
    ("change", "subject", "consequence", "cure"),
    [
        (
            {"aistudio-sdk": "0.3.8"},
            "aistudio-sdk",
            "paddlenlp does not import",
            "pip install aistudio-sdk==0.2.6",
        ),
        ({"protobuf": "7.35.1"}, "protobuf", "add_hparams", "pip install protobuf==4.25.8"),
        ({"numpy": "2.2.6"}, "numpy", "1.26.4", "pip install numpy==1.26.4"),
        (
            {"scipy": "1.14.1", "paddlepaddle": "2.6.2"},
            "scipy",
            "zlib.error",
            "pip install paddlepaddle==3.3.1",
        ),
        ({"paddlepaddle": "3.1.1"}, "paddlepaddle", "pipeline", "pip install paddlepaddle==3.3.1"),
        ({"paddlepaddle-gpu": "3.3.1"}, "paddlepaddle-gpu", "overwrites", "make setup"),
        ({"pip": ""}, "pip", "import pip", "-m ensurepip"),
    ],
)
def test_each_known_clash(sound, change, subject, consequence, cure):
    installed = {name: version for name, version in {**sound, **change}.items() if version}
    findings = packages.check_clashes(installed)
    assert [finding.subject for finding in findings] == [subject]
    assert not findings[0].ok
    assert consequence in findings[0].found
    assert cure in findings[0].fix or (cure == "make setup" and ".venv/bin/python" in findings[0].fix)


def test_every_clash_has_a_case():
    (mark,) = [mark for mark in test_each_known_clash.pytestmark if mark.name == "parametrize"]
    assert {case[1] for case in mark.args[1]} == {clash.package for clash in packages.CLASHES}


def test_an_interpreter_for_something_else_is_left_alone():
    assert packages.check_clashes({"numpy": "2.4.6", "protobuf": "7.0.0"}) == []


def test_several_clashes_have_a_line_each(sound):
    findings = packages.check_clashes({**sound, "protobuf": "7.0.0", "numpy": "2.0.0"})
    assert [finding.subject for finding in findings] == ["protobuf", "numpy"]


def test_installed_packages_have_normalised_names():
    installed = packages.installed_packages()
    assert installed["typing-extensions"] and installed["jinja2"]  # Name: typing_extensions, Jinja2
