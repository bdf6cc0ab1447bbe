"""The seeded faults of benchmarks/mutants.py: which there are, which are drawn, and how they are tried."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.mutants import Finder, draw

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "mutants.py"
USER = ("-c", "user.name=a", "-c", "user.email=a@b")
FAULTS = b'''
def faults(a: 1 = None, b=[1 < 2]) -> 1:
    """1 < 2"""
    if (a) < (2.5):
        raise ValueError(f"{a + 1}" + str(3))
    self.total = call(a, f"{b + 1}")
    print(a == 4)
    done()
    return not a and b
'''
FOUND = """comparison: < -> >= | boundary: < -> <= | constant: 1 -> 2 | constant: 2 -> 3
dropped check: (a) < (2.5) -> False | comparison: < -> >= | boundary: < -> <= | constant: 2.5 -> 5.0
dropped statement: self.total = call(a, f"{b + 1}") -> pass | swapped arguments: a, f"{b + 1}" -> f"{b + 1}", a
dropped statement: done() -> pass | operator: and -> or | operator: not a -> a"""
TOY = "def tested(x):\n    return x > 3\n\n\ndef untested(y):\n    return y > 3\n"
TESTS = """import subprocess, sys
def test_fails():
    assert False
def test_in_a_process():
    code = "import launch.toy as toy; print(toy.tested(3), toy.tested(4))"
    assert subprocess.check_output([sys.executable, "-c", code], cwd="/") == b"False True\\n"
"""


def test_every_kind_is_found_and_texts_are_left_alone():
    found = [f"{one['kind']}: {one['before']} -> {one['after']}" for one in Finder("x.py", FAULTS).found]
    assert found == FOUND.replace("\n", " | ").split(" | ")


def test_files_have_their_share_and_the_seed_decides():
    function = "def f{}(x):\n    # a comment is no code\n    return x + {}\n\n"
    sources = {f"{n}.py": "".join(function.format(i, i) for i in range(10 * n)).encode() for n in (1, 2, 3)}
    drawn = draw(sources, 12, 1)
    assert [one["file"] for one in drawn] == ["1.py"] * 2 + ["2.py"] * 4 + ["3.py"] * 6
    assert len({(one["file"], one["function"]) for one in drawn}) == 12
    assert draw(sources, 12, 1) == drawn != draw(sources, 12, 2)


@pytest.mark.long
def test_a_mutant_is_killed_by_a_process_of_its_own_tree_and_another_survives(tmp_path):
    def git(*arguments: str) -> str:
        return subprocess.check_output(["git", *USER, *arguments], cwd=tmp_path, text=True)

    def run(*arguments: str) -> tuple[dict, list]:
        subprocess.check_output([sys.executable, SCRIPT, "--output", "mutants.json", *arguments], cwd=tmp_path)
        data = json.loads((tmp_path / "mutants.json").read_text())
        found = {row["function"]: row["results"].values() for row in data["rows"]}
        shown = {name: [(one["result"], one.get("by")) for one in found[name]] for name in found}
        return shown, list(data["failing"].values())

    files = {"launch/__init__.py": "", "launch/toy.py": TOY, "tests/test_toy.py": TESTS, "pytest.ini": "[pytest]"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    git("init", "-q")
    git("add", "launch", "tests", "pytest.ini")
    git("commit", "-qm", "toy")
    assert run("--draw", "--count", "2") == ({"tested": [], "untested": []}, [])
    killed, survived, moved = ("killed", "tests/test_toy.py::test_in_a_process"), ("survived", ""), ("moved", None)
    first = run()
    assert first == ({"tested": [killed], "untested": [survived]}, [["tests/test_toy.py::test_fails"]])
    assert run() == first  # nothing is left to try
    (tmp_path / "launch/toy.py").write_text(TOY.replace("return", "return 1 and"))
    (tmp_path / "tests/test_toy.py").write_text(TESTS.replace("assert False", "assert True"))
    git("commit", "-qam", "other statements")
    assert run()[0] == {"tested": [killed, moved], "untested": [survived, moved]}
    (tmp_path / "launch/toy.py").write_text(TOY.replace("return x", "return 1 and not x"))
    (tmp_path / "fault").write_text(git("diff"))
    git("stash", "-q")
    run("--patch", "r02", "fault")
    assert run()[0] == {"tested": [killed, killed], "untested": [survived, moved]}
