"""The plugin: a check that crashes, hangs or raises is a ✗ and the rest go on; what there is, is kept. No Paddle."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launch.certify import certificate
from launch.certify.bench import make_materials
from launch.certify.certificate import CertificatePlugin, all_checks, choose, total_seconds
from launch.certify.results import read_results
from launch.errors import UserError
from tests.certify import fake_checks
from tests.devices.fake_nvml import card
from tests.recipes.machine import Machine
from tests.store import ROOT

OF = {
    "pretended": False,
    "cards_text": "1 x a card",
    "cards": [],
    "driver": "550.54.14, CUDA 12.4",
    "processor": "some",
    "versions": {"paddlepaddle-gpu": "3.3.1"},
    "git_revision": "abc",
}
FAKES = {check.name: check for check in all_checks([fake_checks])}


def run(folder, *names: str, chosen=None, cards=1, **changes) -> CertificatePlugin:
    """The plugin after a session with these of the fake checks, in the order of their file."""
    checks = [check for check in FAKES.values() if check.name in names]
    of = OF | {"pretended": changes.pop("pretend", False)} | changes
    named = [check for check in checks if check.name in (chosen or names)]
    plugin = CertificatePlugin(folder, of, cards, folder / "materials", checks, named, bool(chosen))
    certificate.run(plugin, [Path(fake_checks.__file__)])
    return plugin


@pytest.mark.long
def test_every_end_is_a_result_and_the_rest_go_on(tmp_path):
    done = run(tmp_path, "crashes", "raises", "needs-a-run", "fails", "cannot-be-shown", "passes", "hangs")
    results = done.results
    assert not done.interrupted
    others = {"cannot-be-shown": "–", "passes": "✓"}
    assert {name: one.mark for name, one in results.items() if one.mark != "✗"} == others
    assert results["hangs"].failure == "not finished within 10 s" and results["hangs"].rows[0].mark == "✓"
    assert results["crashes"].failure.startswith("ended by SIGKILL") and len(results["crashes"].rows) == 1
    assert results["raises"].failure == "ValueError: no kernel image for this card"
    assert results["needs-a-run"].failure == "stage2 ended with exit code 137: killed"
    assert results["fails"].found == "sum: 4" and not results["fails"].failure
    assert results["passes"].rows[0].numbers == {"value": 4}
    assert read_results(tmp_path / "certify.json") == (OF, results)
    page = (tmp_path / "certify.md").read_text()
    assert "- 4 crashes: it is at fault." in page and "passes: it is" not in page
    assert re.search(r"\| 1 \| ✓ \| passes \| all well \| 4 \| \d+ \|\n", page), page


LEFT = """
import sys, time
from pathlib import Path
from launch.certify import certificate
from launch.processes.orphans import adopt_orphans
from tests.certify.test_certificate import run

adopt_orphans()
folder = Path(sys.argv[1])
for stays, patience in ((False, 45), (True, 0.5)):
    certificate.SECONDS_TO_END = patience
    (folder / str(stays)).mkdir()
    if stays:
        (folder / str(stays) / "stays").touch()
    results = run(folder / str(stays), "leaves-a-process", "is-alone").results
    print("found:", results["leaves-a-process"].mark, results["is-alone"].found)
"""


@pytest.mark.long
def test_the_next_check_begins_when_nothing_of_the_last_is_left(tmp_path):
    """It ends by itself first, and then it is killed. In a process that may adopt what is left."""
    done = subprocess.run([sys.executable, "-c", LEFT, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout.count("found: ✗ gone") == 2, done.stdout + done.stderr


def test_what_is_to_be_sent_has_no_paths_and_no_numbers_that_are_none(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    results = run(tmp_path, "names-paths", "loses-its-numbers").results
    assert results["names-paths"].rows[0].found == f"OUTPUT/names-paths/a, {ROOT}-2, .: ~"
    assert results["names-paths"].failure.startswith("OUTPUT/names-paths rank 0: no ./launch ./launch ")
    for file in ("certify.json", "certify.md"):
        text = (tmp_path / file).read_text().replace(f"{ROOT}-2", "")
        assert not re.search(rf"({tmp_path}|{ROOT.parent})(?![\w-])", text), text
    marks = {row.what: row.mark for row in results["loses-its-numbers"].rows}
    assert marks == {"loss": "✗", "norm": "✗", "none": "✓"}


def test_a_pretended_run_passes_nothing(tmp_path):
    results = run(tmp_path, "passes", "fails", pretend=True).results
    assert [result.mark for result in results.values()] == ["–", "✗"]
    assert [row.mark for row in results["passes"].rows] == ["–"]


def test_results_are_kept_when_it_is_interrupted_or_the_machine_is_another_and_it_goes_on(tmp_path, monkeypatch):
    names = ("fails", "counts", "is-interrupted")
    done = run(tmp_path, *names)
    assert done.interrupted and list(done.results) == ["fails", "counts"]
    assert read_results(tmp_path / "certify.json")[1] == done.results
    assert "| is-interrupted | all well | not run yet |  |" in (tmp_path / "certify.md").read_text()
    done = run(tmp_path, *names[:2])
    assert not done.interrupted and set(done.results) == {"fails", "counts"}
    assert (tmp_path / "runs").read_text() == "x", "what passed is not checked again"
    assert (tmp_path / "fails.1").is_dir(), "what failed is, and its first logs are kept"
    run(tmp_path, *names[:2], chosen=["counts"])
    assert (tmp_path / "runs").read_text() == "xx", "what --only names is checked again"
    done = run(tmp_path, "counts", driver="580.0")
    assert (tmp_path / "runs").read_text() == "xxx" and list(done.results) == ["counts"]
    assert json.loads((tmp_path / "certify.1.json").read_text())["of"] == OF
    assert json.loads((tmp_path / "certify.json").read_text())["of"]["driver"] == "580.0"
    monkeypatch.setattr(certificate, "list_cards", lambda: [card("A100", 0), card("A100", 1)])
    described = certificate.describe_machine(False)
    assert described["cards_text"] == "2 x NVIDIA A100-SXM4-80GB (80 GB)"
    assert json.loads(json.dumps(described)) == described


def test_checks_are_chosen_by_name_and_number_and_ended_after_their_limits():
    checks = all_checks()
    assert len({check.name for check in checks}) == len(checks)
    assert [check.name for check in choose("recipe-lora-1gpu, 1", checks)] == ["environment", "recipe-lora-1gpu"]
    with pytest.raises(UserError, match="--only: found 'flash', allowed: 1 environment, 2"):
        choose("flash", checks)
    for check in checks:
        assert check.limit >= 2 * check.seconds_for(False, 8), f"{check.name} is ended before it can be done"
    quick, default, full = choose("", checks, quick=True), choose("", checks), choose("", checks, full=True)
    assert {"views", "lora-step", "full-step", "serving"} < {check.name for check in quick}
    assert full == list(checks) and set(quick) < set(default)
    left = {check.name.partition("-")[0] for check in set(full) - set(default)}
    assert left == {"recipe"}, "all other checks are in the default"
    minutes = {
        (name, cards): round(total_seconds(chosen, False, cards) / 60)
        for name, chosen, cards in (
            ("quick", quick, 1), ("default", default, 1), ("default", default, 8), ("full", full, 1), ("full", full, 8)
        )
    }  # fmt: skip
    promised = {("quick", 1): 6, ("default", 1): 33, ("default", 8): 11, ("full", 1): 66, ("full", 8): 31}
    assert minutes == promised, "docs/certify.md and the README promise these"
    assert total_seconds(default, False, 8) <= 12 * 60 and total_seconds(quick, False, 1) <= 9 * 60


def test_checks_run_side_by_side_on_cards_of_their_own(tmp_path, monkeypatch):
    """Two at once where there are two cards, then one that takes both; the estimate is made by the same rule."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5")
    results = run(tmp_path, "has-a-card", "meets-the-other", "takes-all", cards=2).results
    found = {name: [row.found for row in result.rows] for name, result in results.items()}
    assert found["takes-all"] == ["3,GPU-5", "nobody else"]
    assert found["has-a-card"][1:] == found["meets-the-other"][1:] == ["the other is here"]
    assert {found["has-a-card"][0], found["meets-the-other"][0]} == {"3", "GPU-5"}
    long, short = (replace(FAKES["passes"], seconds=seconds) for seconds in (60, 20))
    both = replace(short, cards=2)
    assert total_seconds([long, both, short, short], False, 2) == 80, "two short ones beside the long one, then both"
    assert total_seconds([long, both, short, short], True, 2) == 4, "processes share cores: one after another"


def test_on_cards_the_products_own_commands_are_started(tmp_path, monkeypatch):
    """As far as their ranks, where Paddle is a stand-in that cannot be imported; what they say at their end is told."""
    make_materials("llama-rehearsal")  # of the second's recipe, by Paddle itself
    machine = Machine(tmp_path, cards=2)
    for name, value in machine.environment(CUDA_VISIBLE_DEVICES="0,1").items():
        monkeypatch.setenv(name, value)
    names = ("trains-on-a-card", "measures-a-recipe", "measures-one-that-does-not-fit")
    results = run(tmp_path / "certify", *names, cards=2).results
    end = "rank 0: AssertionError: Paddle was imported"
    failure = results["trains-on-a-card"].failure
    assert failure.startswith("two-cards ended with exit code 2: ") and "✗ model" in failure, "there is no tiny model"
    assert results["measures-a-recipe"].failure == f"lora-1gpu ended with exit code 1: {end}"
    [row] = results["measures-one-that-does-not-fit"].rows
    assert (row.mark, row.expected, row.found) == ("–", "4 or more", "2 here")


def test_without_a_card_it_says_how_to_pretend(tmp_path):
    command = [sys.executable, "launch/commands/certify.py", "--output", str(tmp_path / "none")]
    machine = Machine(tmp_path, cards=0)
    done = subprocess.run(command, cwd=ROOT, env=machine.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and "make certify ARGS=--pretend shows" in " ".join(done.stderr.split())


@pytest.mark.nightly
def test_of_a_pretended_run_all_checks_end_and_none_passes(tmp_path):
    command = [sys.executable, "launch/commands/certify.py", "--output", str(tmp_path), "--pretend", "--full"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "certify.json").read_text())
    assert [result["name"] for result in report["results"]] == [check.name for check in all_checks()]
    for result in report["results"]:
        assert result["mark"] == "–" and result["rows"] and not result["failure"], result
        assert all(row["mark"] != "✗" for row in result["rows"])
    page = (tmp_path / "certify.md").read_text()
    assert "**A pretended run" in page and "✗ " not in page.partition("## Checks")[2]
