"""The locks: complete, hashed, no index in them, and the one for GPUs made from the one for CPUs."""

import re

import pytest

from launch.environment.pins import REQUIREMENTS, Pin, paddle_version, read_lock, without

LOCK = """\
# made by a tool
numpy==1.26.4 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via scipy
paddlepaddle==3.3.1 \\
    --hash=sha256:cc
    # via -r cpu.in
paddlepaddle-extra==1.0 ; python_full_version < '3.11' \\
    --hash=sha256:dd
"""


def test_a_lock_is_read_and_that_for_gpus_is_the_other_without_paddlepaddle(tmp_path):
    (tmp_path / "some.lock").write_text(LOCK)
    assert read_lock(tmp_path / "some.lock") == [
        Pin("numpy", "1.26.4", ""),
        Pin("paddlepaddle", "3.3.1", ""),
        Pin("paddlepaddle-extra", "1.0", "python_full_version < '3.11'"),
    ]
    shorter = without(LOCK, "paddlepaddle")  # whole, and no other that begins so
    assert "cc" not in shorter and "cpu.in" not in shorter and "paddlepaddle-extra==1.0" in shorter
    cpu_lock = (REQUIREMENTS / "cpu.lock").read_text()
    assert (REQUIREMENTS / "gpu.lock").read_text() == without(cpu_lock, "paddlepaddle")
    names = {pin.name for pin in read_lock(REQUIREMENTS / "cpu.lock")}
    assert names - {pin.name for pin in read_lock(REQUIREMENTS / "gpu.lock")} == {"paddlepaddle"}


@pytest.mark.parametrize(
    ("name", "least"),
    [("cpu.lock", 101), ("gpu.lock", 101), ("hubs.lock", 8), ("evaluate.lock", 40), ("grammar.lock", 1)],
)
def test_every_line_is_a_pin_a_hash_or_a_comment_and_names_no_index(name, least):
    text = (REQUIREMENTS / name).read_text()
    assert "://" not in text and "--index" not in text and "--find-links" not in text
    pins = [line for line in text.splitlines() if not line.startswith((" ", "#"))]
    assert len(pins) == len(read_lock(REQUIREMENTS / name)) >= least
    for block in re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]:
        assert "    --hash=sha256:" in block, block


@pytest.mark.parametrize("later_lock", ["hubs.lock", "evaluate.lock"])
def test_what_is_installed_later_changes_nothing_that_is_there(later_lock):
    """`make download` and `make evaluate` add to an environment: what cpu.lock has, they have in the same versions."""
    locked, later = ({}, {})
    for versions, name in ((locked, "cpu.lock"), (later, later_lock)):
        for pin in read_lock(REQUIREMENTS / name):
            versions.setdefault(pin.name, set()).add(pin.version)
    assert {name: versions for name, versions in later.items() if not versions <= locked.get(name, versions)} == {}


def test_pins_of_the_in_files_are_those_of_the_lock():
    locked = {pin.name: pin.version for pin in read_lock(REQUIREMENTS / "cpu.lock")}
    chosen = "".join((REQUIREMENTS / name).read_text() for name in ("base.in", "cpu.in", "dev.in"))
    for name in re.findall(r"^([A-Za-z][\w-]*)", chosen, re.MULTILINE):
        assert name.replace("_", "-") in locked, f"{name}: run make lock"
    for name, version in re.findall(r"^([\w-]+)==([\w.]+)", chosen, re.MULTILINE):
        assert locked[name.replace("_", "-")] == version, f"{name}: run make lock"
    assert paddle_version() == locked["paddlepaddle"] == "3.3.1"
    [grammars] = read_lock(REQUIREMENTS / "grammar.lock")
    assert f"\n{grammars.name}=={grammars.version} " in (REQUIREMENTS / "compare.txt").read_text()


def test_no_compiler_is_needed_on_python_3_12():
    """onnxoptimizer has no wheel there and would be compiled for minutes (requirements/overrides.txt)."""
    pins = read_lock(REQUIREMENTS / "cpu.lock")
    assert [pin.marker for pin in pins if pin.name == "onnxoptimizer"] == ["python_full_version < '3.12'"]
