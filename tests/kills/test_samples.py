"""Each sample once an epoch, on every number of cards and across kills: noted where training is fed, for token files,
dialogues and packed dialogues; and `python launch/commands/ledger.py` proves it of the run."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from launch.checkpoint.checkpoint_writer import FAULT_VARIABLE
from launch.checkpoint.manifest import MANIFEST, RUN, read_manifest
from launch.commands.ledger import main as ledger
from tests.distributed.cells import FULL, PRETRAINING
from tests.distributed.layouts import DP2, SINGLE, Layout
from tests.kills.reading_ranks import read_notes
from tests.recipes.machine import ROOT
from tests.runs import as_words

TRAIN = "tests.kills.reading_ranks:train"
# A run that is killed after step 5 on two ranks and after step 9 on one, and goes on to the end on four.
PARTS = [(DP2, 5), (Layout(accumulation=2), 9), (Layout(data=4), None)]


class Reading:
    """Runs of a kind of data that note what they are fed. root: for the runs."""

    def __init__(self, runs, root: Path, kind: str):
        self.runs, self.root = runs, root
        self.method = PRETRAINING if kind == "tokens" else FULL
        self.flags = {"max_steps": 14, "save_steps": 1, "do_eval": 0}
        if kind == "packed":
            self.flags |= {"zero_padding": 1, "max_length": 192}

    @property
    def steps(self) -> int:
        return self.flags["max_steps"]

    def train(self, output: Path, layout: Layout, kill_after: int | None) -> dict[int, Counter]:
        """The steps that this part of the run has left in the weights."""
        notes = f"{output}-notes-{layout.name}-{layout.accumulation}"
        words = as_words(self.runs.words(self.method, layout, **self.flags) | {"output_dir": output})
        outcome = self.runs.ranks.outcome(
            layout.processes, TRAIN, self.method, words, notes, directory=Path(f"{notes}-log"), grace=0.2,
            environment={FAULT_VARIABLE: f"after-rename@{kill_after}"} if kill_after else None,
        )  # fmt: skip
        assert outcome.exit_code == (137 if kill_after else 0)
        return {step: fed for step, fed in read_notes(notes).items() if step <= (kill_after or self.steps)}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("tokens", marks=pytest.mark.long),
        pytest.param("packed", marks=pytest.mark.long),
        pytest.param("dialogues", marks=pytest.mark.nightly),
    ],
)
def reading(runs, tmp_path_factory, request) -> Reading:
    return Reading(runs, tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def killed(reading) -> tuple[Path, dict[int, Counter]]:
    """The output of a run in parts, and what each step was fed."""
    output, fed = reading.root / "killed", {}
    for layout, kill_after in PARTS:
        fed |= reading.train(output, layout, kill_after)
    return output, fed


def test_each_step_is_fed_what_it_would_have_been_without_the_kills(reading, killed):
    whole = reading.train(reading.root / "whole", SINGLE, None)
    assert list(range(1, reading.steps + 1)) == sorted(whole) == sorted(killed[1])
    assert killed[1] == whole


def test_each_sample_was_fed_once_an_epoch(reading, killed):
    """The epochs end within steps, so the first few whole ones are counted together."""
    output, fed = killed
    ledgers = json.loads((output / f"checkpoint-{reading.steps}" / RUN).read_text())["ledger"]
    samples, total = ledgers["data"][0]["samples"], sum(sum(one.values()) for one in fed.values())
    assert total == 8 * reading.steps and total > 2 * samples
    counts = Counter()
    for one in fed.values():
        counts += one
    assert len(counts) == samples and set(counts.values()) <= {total // samples, total // samples + 1}


def test_the_ledger_proves_it(reading, killed, capsys):
    assert ledger([str(killed[0])]) == 0
    told = capsys.readouterr().out
    assert f"/checkpoint-{reading.steps}: step {reading.steps}, {8 * reading.steps} samples, " in told
    assert "steps 1 to 5: positions 0 to 40, " in told and "8 samples a step on 2 data ranks" in told
    assert "steps 6 to 9: positions 40 to 72, " in told and "8 samples a step on 1 data rank\n" in told
    assert f"steps 10 to {reading.steps}: positions 72 to {8 * reading.steps}, " in told
    assert "✓ data 1, epoch 1: " in told and "✗" not in told


def test_a_ledger_that_reads_samples_twice_is_found(killed, tmp_path, capsys):
    newest = max(killed[0].glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    checkpoint = tmp_path / newest.name
    checkpoint.mkdir()
    run = json.loads((newest / RUN).read_text())
    run["ledger"]["ranges"][1]["start"] -= 8
    (checkpoint / RUN).write_text(json.dumps(run))
    files = {RUN: {"bytes": (checkpoint / RUN).stat().st_size, "sha256": ""}}
    (checkpoint / MANIFEST).write_text(replace(read_manifest(newest), files=files).to_json())
    assert ledger([str(tmp_path)]) == 1
    assert "✗ data 1, positions 32 to 40: read again after step 5" in capsys.readouterr().out


def test_a_folder_without_a_checkpoint_is_named(tmp_path):
    command = [sys.executable, ROOT / "launch" / "commands" / "ledger.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {tmp_path}: no checkpoint")


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "refusal", "ranges"),
    [
        (
            {"gradient_accumulation_steps": 2},
            "16 samples a step, the 3 steps before took 8 each",
            "steps 4 to 6: positions 24 to 72, ",
        ),
        ({"seed": 7}, "not those of the run so far: seed 7, was 42", "data 2: "),
    ],
)
def test_another_batch_or_other_data_are_refused_unless_asked_for(runs, tmp_path, changes, refusal, ranges, capsys):
    output = tmp_path / "out"
    shutil.copytree(runs(PRETRAINING).output / "checkpoint-3", output / "checkpoint-3")
    words = as_words(runs.words(PRETRAINING, **changes) | {"output_dir": output})
    allow = ["--resume_changed", "batch", "data"]
    refused, allowed = (
        runs.ranks(1, "tests.runs_ranks:train", "run_pretrain", [*words, *more], [])[0] for more in ([], allow)
    )
    assert refused["exit_code"] == 2 and refusal in " ".join(refused["stderr"].split())
    assert f"--resume_changed {'data' if 'seed' in changes else 'batch'}" in refused["stderr"]
    assert allowed["exit_code"] == 0, allowed["stderr"]
    assert ledger([str(output)]) == 0
    assert ranges in capsys.readouterr().out
