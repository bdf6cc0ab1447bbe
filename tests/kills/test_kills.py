"""SIGKILL at each stage of a save and at random moments: every resumed run is the uninterrupted one to the last bit."""

import os
import shutil
from pathlib import Path

import pytest

from launch.checkpoint.manifest import checkpoints, first_fault
from tests.distributed.cells import DROPOUT, KTO, PAIRS, PRETRAINING, REINFORCEMENT, Cell
from tests.distributed.layouts import Layout
from tests.kills.harness import EACH_STEP, STEPS, VICTIMS, Kill, hashes, kills, records, train, was_killed
from tests.runs import as_words

ONE = VICTIMS[0]


def is_the_uninterrupted_one(runs, victim: Cell, output: Path, kills: list[Kill]) -> None:
    """Kill a run again and again, let it end, and compare what it leaves each time."""
    uninterrupted = runs(**victim.arguments).output
    expected = records(uninterrupted)
    assert len(expected) == STEPS
    for kill in kills:
        assert was_killed(train(runs, victim, output, kill), output), kill
        done = records(output)
        assert done == expected[: len(done)], kill
        assert all(first_fault(checkpoint) is None for checkpoint in checkpoints(output)), kill
        for checkpoint in checkpoints(output):
            assert hashes(output, step := int(checkpoint.name.split("-")[1])) == hashes(uninterrupted, step), kill
    assert train(runs, victim, output).exit_code == 0
    assert records(output) == expected
    assert hashes(output) == hashes(uninterrupted)


def test_a_run_killed_while_it_saves_is_the_uninterrupted_one(runs, tmp_path):
    is_the_uninterrupted_one(runs, ONE, tmp_path / "killed", [Kill(fault="between-files@4:0")])


@pytest.mark.parametrize(
    "victim",
    [pytest.param(one, id=one.name, marks=pytest.mark.long if one == ONE else pytest.mark.nightly) for one in VICTIMS],
)
def test_a_run_killed_again_and_again_is_the_uninterrupted_one(runs, tmp_path, victim):
    is_the_uninterrupted_one(runs, victim, tmp_path / "killed", kills(victim))


@pytest.mark.nightly
@pytest.mark.parametrize(("method", "flags"), [(PRETRAINING, {}), (PAIRS, DROPOUT | KTO)], ids=["pretraining", "KTO"])
def test_a_kill_between_micro_batches_resumes_after_the_last_optimizer_step(runs, tmp_path, method, flags):
    """KTO has measured the z0 of that step before its first micro batch."""
    victim = Cell(method, Layout(accumulation=4), EACH_STEP | flags)
    is_the_uninterrupted_one(runs, victim, tmp_path / "killed", [Kill(moment=(6, 0, 0.0, 3))])


@pytest.mark.nightly
def test_reinforcement_killed_in_each_phase_is_the_uninterrupted_one(runs, tmp_path):
    """In a rollout's sampling, between its rewards, and before an update: in a save it is killed above, as all are."""
    phases = [
        ("launch.generation.sampler:Sampler", "_draw", 20),  # 12 and more for 64 answers
        ("launch.training.rewarding:RewardProcesses", "of", 21),  # 16 prompts a rollout
        ("paddle.optimizer:AdamW", "step", 2),  # the second one of the last rollout
    ]
    [victim] = [one for one in VICTIMS if one.method == REINFORCEMENT]
    is_the_uninterrupted_one(runs, victim, tmp_path / "killed", [Kill(moment=phase) for phase in phases])


# ---- files


def truncate(checkpoint: Path) -> str:
    file = largest(checkpoint)
    os.truncate(file, file.stat().st_size - 1)
    return file.name


def flip_a_bit(checkpoint: Path) -> str:
    file = largest(checkpoint)
    with open(file, "r+b") as stream:
        stream.seek(file.stat().st_size // 2)
        byte = stream.read(1)[0]
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte ^ 4]))
    return file.name


def remove(checkpoint: Path) -> str:
    (checkpoint / "run.json").unlink()
    return "run.json"


def take_from_another(checkpoint: Path) -> str:
    """A file of the same size and name, of an earlier step."""
    earlier = checkpoint.with_name(f"checkpoint-{STEPS - 3}")
    name = largest(checkpoint).name
    shutil.copyfile(earlier / name, checkpoint / name)
    return name


def largest(checkpoint: Path) -> Path:
    return max(checkpoint.iterdir(), key=lambda file: file.stat().st_size)


@pytest.mark.long
@pytest.mark.parametrize("damage", [truncate, flip_a_bit, remove, take_from_another])
def test_a_damaged_checkpoint_is_named_kept_and_not_used(runs, tmp_path, damage):
    whole, output, newest = runs(**ONE.arguments).output, tmp_path / "out", f"checkpoint-{STEPS - 1}"
    shutil.copytree(whole, output, ignore=shutil.ignore_patterns(f"checkpoint-{STEPS}"))
    file = damage(output / newest)
    (output / "run_summary.json").unlink(missing_ok=True)
    assert train(runs, ONE, output).exit_code == 0
    said = (tmp_path / "out-log" / "workerlog.0").read_text()
    assert file in said and f"damaged-{newest}" in said
    assert (output / f"damaged-{newest}").is_dir()
    assert records(output) == records(whole) and hashes(output) == hashes(whole)


# ---- a full disk


@pytest.mark.long
def test_a_full_disk_leaves_the_checkpoint_before_untouched(runs, tmp_path):
    """Of RLIMIT_FSIZE the kernel makes what a full disk is to write(): an error in the middle of a file."""
    whole, output = runs(**ONE.arguments).output, tmp_path / "out"
    shutil.copytree(whole / "checkpoint-2", output / "checkpoint-2")
    before = {file.name: file.read_bytes() for file in (output / "checkpoint-2").iterdir()}
    size = largest(output / "checkpoint-2").stat().st_size
    words = as_words(runs.words(**ONE.arguments) | {"output_dir": output})
    [said] = runs.ranks(1, "tests.kills.ranks:train_with_small_disk", "run_pretrain", words, size // 2)
    assert said["exit_code"] == 2 and "Traceback" not in said["stderr"]
    assert "checkpoint-3" in said["stderr"] and "Free the disk and start again" in said["stderr"]
    assert {file.name: file.read_bytes() for file in (output / "checkpoint-2").iterdir()} == before
    assert [path.name for path in checkpoints(output)] == ["checkpoint-2"]
    assert train(runs, ONE, output).exit_code == 0
    assert hashes(output) == hashes(whole)
