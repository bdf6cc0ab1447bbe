"""The runner: a check that crashes, hangs or raises is a ✗ and the rest go on; what there is, is kept. No Paddle."""

import json
import re
import subprocess
import sys

import pytest

from launch.certify import runner
from launch.certify.bench import make_materials
from launch.certify.checks import Check, all_checks, choose
from launch.certify.results import read_results
from launch.certify.runner import Session, run_checks
from launch.errors import UserError
from tests.devices.fake_nvml import card
from tests.recipes.machine import Machine
from tests.store import ROOT

OF = {
    "pretended": False,
    "cards_text": "1 x a card",
    "driver": "550.54.14, CUDA 12.4",
    "processor": "some",
    "versions": {"paddlepaddle-gpu": "3.3.1"},
    "git_revision": "abc",
}


def check(name: str, limit: float = 60) -> Check:
    where = f"tests.certify.fake_checks:{name}"
    return Check(name, f"check {name}", "all well", f"{name} is at fault", where, seconds=1, pretended=1, limit=limit)


def session(folder, **changes) -> Session:
    return Session(folder, OF | changes.pop("of", {}), 2, changes.pop("pretend", False), folder / "materials")


def run(folder, *checks: Check, chosen=None, **changes):
    return run_checks(session(folder, **changes), checks, chosen or checks)


@pytest.mark.long
def test_every_end_is_a_result_and_the_rest_go_on(tmp_path):
    checks = [check(name) for name in ("crashes", "raises", "needs_a_run", "fails", "cannot_be_shown", "passes")]
    results, interrupted = run(tmp_path, check("hangs", limit=10), *checks)
    assert not interrupted
    assert {name: one.mark for name, one in results.items() if one.mark != "✗"} == {
        "cannot_be_shown": "–",
        "passes": "✓",
    }
    assert results["hangs"].failure == "not finished within 10 s" and results["hangs"].rows[0].mark == "✓"
    assert results["crashes"].failure.startswith("ended by SIGKILL") and len(results["crashes"].rows) == 1
    assert results["raises"].failure == "ValueError: no kernel image for this card"
    assert results["needs_a_run"].failure == "stage2 ended with exit code 137: killed"
    assert results["fails"].found == "sum: 4" and not results["fails"].failure
    assert results["passes"].rows[0].numbers == {"value": 4}
    assert read_results(tmp_path / "certify.json") == (OF, results)
    page = (tmp_path / "certify.md").read_text()
    assert "- 2 check crashes: crashes is at fault." in page and "passes is at fault" not in page
    assert re.search(r"\| 7 \| ✓ \| check passes \| all well \| 4 \| \d+ \|\n", page), page


LEFT = """
import sys, time
from pathlib import Path
from launch.certify import runner
from launch.processes.orphans import adopt_orphans
from tests.certify.test_runner import check, run

adopt_orphans()
folder = Path(sys.argv[1])
for stays, patience in ((False, 45), (True, 0.5)):
    runner.SECONDS_TO_END = patience
    (folder / str(stays)).mkdir()
    if stays:
        (folder / str(stays) / "stays").touch()
    results, _ = run(folder / str(stays), check("leaves_a_process"), check("is_alone"))
    print("found:", results["leaves_a_process"].mark, results["is_alone"].found)
"""


@pytest.mark.long
def test_the_next_check_begins_when_nothing_of_the_last_is_left(tmp_path):
    """It ends by itself first, and then it is killed. In a process that may adopt what is left."""
    done = subprocess.run([sys.executable, "-c", LEFT, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout.count("found: ✗ gone") == 2, done.stdout + done.stderr


def test_what_is_to_be_sent_has_no_paths(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    results, _ = run(tmp_path, check("names_paths"))
    assert results["names_paths"].rows[0].found == f"OUTPUT/names_paths/a, {ROOT}-2, .: ~"
    assert results["names_paths"].failure.startswith("OUTPUT/names_paths rank 0: no ./launch ./launch ")
    for file in ("certify.json", "certify.md"):
        text = (tmp_path / file).read_text().replace(f"{ROOT}-2", "")
        assert not re.search(rf"({tmp_path}|{ROOT.parent})(?![\w-])", text), text


def test_a_step_that_is_no_number_is_not_as_expected(tmp_path):
    results, _ = run(tmp_path, check("loses_its_numbers"))
    marks = {row.what: row.mark for row in results["loses_its_numbers"].rows}
    assert marks == {"loss": "✗", "norm": "✗", "none": "✓"}


def test_a_pretended_run_passes_nothing(tmp_path):
    results, _ = run(tmp_path, check("passes"), check("fails"), pretend=True)
    assert [result.mark for result in results.values()] == ["–", "✗"]
    assert [row.mark for row in results["passes"].rows] == ["–"]


def test_the_results_so_far_are_kept_when_it_is_interrupted_and_it_goes_on(tmp_path):
    checks = [check("counts"), check("fails"), check("is_interrupted"), check("passes")]
    results, interrupted = run(tmp_path, *checks)
    assert interrupted and list(results) == ["counts", "fails"]
    assert read_results(tmp_path / "certify.json")[1] == results
    assert "| 3 |  | check is_interrupted | all well | not run yet |  |" in (tmp_path / "certify.md").read_text()
    checks[2] = check("passes")
    results, interrupted = run(tmp_path, *checks[:3])
    assert not interrupted and list(results) == ["counts", "fails", "passes"]
    assert (tmp_path / "runs").read_text() == "x", "what passed is not checked again"
    assert (tmp_path / "fails.1").is_dir(), "what failed is, and its first logs are kept"
    run(tmp_path, *checks[:3], chosen=[checks[0]])
    assert (tmp_path / "runs").read_text() == "xx", "what --only names is checked again"


def test_results_of_another_machine_are_kept_apart(tmp_path, monkeypatch):
    run(tmp_path, check("counts"))
    results, _ = run(tmp_path, check("counts"), of={"driver": "580.0"})
    assert (tmp_path / "runs").read_text() == "xx" and list(results) == ["counts"]
    assert json.loads((tmp_path / "certify.1.json").read_text())["of"] == OF
    assert json.loads((tmp_path / "certify.json").read_text())["of"]["driver"] == "580.0"
    monkeypatch.setattr(runner, "list_cards", lambda: [card("A100", 0), card("A100", 1)])
    described = runner.describe_machine(False)
    assert described["cards_text"] == "2 x NVIDIA A100-SXM4-80GB (80 GB)"
    assert json.loads(json.dumps(described)) == described


def test_checks_are_chosen_by_name_and_number_and_ended_after_their_limits():
    checks = all_checks()
    assert len({check.name for check in checks}) == len(checks)
    assert choose("", checks) == list(checks)
    assert [check.name for check in choose("recipe-lora-1gpu, 1", checks)] == ["environment", "recipe-lora-1gpu"]
    with pytest.raises(UserError, match="--only: found 'flash', allowed: 1 environment, 2"):
        choose("flash", checks)
    for check in checks:
        assert check.limit >= 2 * (check.seconds + check.several), f"{check.name} is ended before it can be done"
    assert sum(check.seconds_for(False, 1) for check in checks) <= 40 * 60, "the page promises 40 minutes on one card"


def test_on_cards_the_products_own_commands_are_started(tmp_path, monkeypatch):
    """As far as their ranks, where Paddle is a stand-in that cannot be imported; what they say at their end is told."""
    make_materials("llama-rehearsal")  # of the second's recipe, by Paddle itself
    machine = Machine(tmp_path, cards=2)
    for name, value in machine.environment(CUDA_VISIBLE_DEVICES="0,1").items():
        monkeypatch.setenv(name, value)
    names = ("trains_on_a_card", "measures_a_recipe", "measures_one_that_does_not_fit")
    results, _ = run(tmp_path / "certify", *map(check, names))
    end = "rank 0: AssertionError: Paddle was imported"
    failure = results["trains_on_a_card"].failure
    assert failure.startswith("two-cards ended with exit code 2: ") and "✗ model" in failure, "there is no tiny model"
    assert results["measures_a_recipe"].failure == f"lora-1gpu ended with exit code 1: {end}"
    [row] = results["measures_one_that_does_not_fit"].rows
    assert (row.mark, row.expected, row.found) == ("–", "4 or more", "2 here")


@pytest.mark.nightly
def test_of_a_pretended_run_all_checks_end_and_none_passes(tmp_path):
    command = [sys.executable, "launch/commands/certify.py", "--output", str(tmp_path), "--pretend"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "certify.json").read_text())
    assert [result["name"] for result in report["results"]] == [check.name for check in all_checks()]
    for result in report["results"]:
        assert result["mark"] == "–" and result["rows"] and not result["failure"], result
        assert all(row["mark"] != "✗" for row in result["rows"])
    page = (tmp_path / "certify.md").read_text()
    assert "**A pretended run" in page and "✗ " not in page.partition("## Checks")[2]
