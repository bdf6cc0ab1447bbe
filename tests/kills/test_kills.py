"""SIGKILL at each stage of a save and at random moments: every resumed run is the uninterrupted one to the last bit."""

import os
import shutil
from pathlib import Path

import pytest

from launch.checkpoint.manifest import checkpoints, first_fault
from tests.distributed.layouts import SINGLE, Layout
from tests.kills.harness import KTO, STEPS, VICTIMS, Kill, Slaughter, Victim, hashes, kills, records, was_killed
from tests.training.run_ranks import make_corpus
from tests.training.test_run_pretrain import argv

ONE = Victim(SINGLE)


@pytest.fixture(scope="module")
def slaughter(ranks, tmp_path_factory) -> Slaughter:
    root = tmp_path_factory.mktemp("kills")
    (root / "pretrain").mkdir()
    ranks(1, "tests.distributed.training_ranks:make_material", str(root / "pretrain"), 4)
    ranks(1, "tests.training.finetune_material:make_material", str(root / "finetune"))
    return Slaughter(ranks, {"pretrain": root / "pretrain", "finetune": root / "finetune"})


@pytest.fixture(scope="module")
def whole(slaughter, tmp_path_factory) -> Path:
    """A single process that nobody killed."""
    output = tmp_path_factory.mktemp("whole") / "out"
    assert slaughter.train(ONE, output).exit_code == 0
    return output


def test_the_matrix_has_at_least_forty_kills():
    assert sum(len(kills(victim)) for victim in VICTIMS) >= 40


@pytest.mark.parametrize(
    "victim", [pytest.param(one, id=one.name, marks=[] if one == ONE else [pytest.mark.long]) for one in VICTIMS]
)
def test_a_run_killed_again_and_again_is_the_uninterrupted_one(slaughter, whole, tmp_path, victim):
    uninterrupted, output = whole, tmp_path / "killed"
    if victim != ONE:
        uninterrupted = tmp_path / "whole"
        assert slaughter.train(victim, uninterrupted).exit_code == 0
    expected = records(uninterrupted)
    assert len(expected) == STEPS
    for kill in kills(victim):
        assert was_killed(slaughter.train(victim, output, kill), output), kill
        done = records(output)
        assert done == expected[: len(done)], kill
        assert all(first_fault(checkpoint) is None for checkpoint in checkpoints(output)), kill
        for checkpoint in checkpoints(output):
            assert hashes(output, step := int(checkpoint.name.split("-")[1])) == hashes(uninterrupted, step), kill
    assert slaughter.train(victim, output).exit_code == 0
    assert records(output) == expected
    assert hashes(output) == hashes(uninterrupted)


@pytest.mark.long
@pytest.mark.parametrize("method", [(), KTO], ids=["pretraining", "KTO"])
def test_a_kill_between_micro_batches_resumes_after_the_last_optimizer_step(slaughter, tmp_path, method):
    """KTO has measured the z0 of that step before its first micro batch."""
    victim = Victim(Layout(accumulation=4), method, prefers=method == KTO)
    assert slaughter.train(victim, tmp_path / "whole").exit_code == 0
    assert was_killed(slaughter.train(victim, tmp_path / "killed", Kill(moment=(6, 0, 0.0, 3))), tmp_path / "killed")
    expected = records(tmp_path / "whole")
    assert records(tmp_path / "killed") == expected[:5]
    assert checkpoints(tmp_path / "killed")[0].name == "checkpoint-5"
    assert slaughter.train(victim, tmp_path / "killed").exit_code == 0
    assert records(tmp_path / "killed") == expected
    assert hashes(tmp_path / "killed") == hashes(tmp_path / "whole")


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


@pytest.mark.parametrize(
    "damage",
    [pytest.param(one, marks=[] if one is flip_a_bit else [pytest.mark.long], id=one.__name__)
     for one in (truncate, flip_a_bit, remove, take_from_another)],
)  # fmt: skip
def test_a_damaged_checkpoint_is_named_kept_and_not_used(slaughter, whole, tmp_path, damage):
    output, newest = tmp_path / "out", f"checkpoint-{STEPS - 1}"
    shutil.copytree(whole, output, ignore=shutil.ignore_patterns(f"checkpoint-{STEPS}"))
    file = damage(output / newest)
    (output / "run_summary.json").unlink(missing_ok=True)
    assert slaughter.train(ONE, output).exit_code == 0
    said = (tmp_path / "out-log" / "workerlog.0").read_text()
    assert file in said and f"damaged-{newest}" in said
    assert (output / f"damaged-{newest}").is_dir()
    assert records(output) == records(whole) and hashes(output) == hashes(whole)


# ---- a full disk


def small_disk_flags(corpus: Path, output: Path, **changes) -> list[str]:
    usual = {"do_eval": 0, "max_steps": 4, "save_steps": 2, "logging_steps": 1, "report_to": "none"}
    return argv(corpus, output, **(usual | changes))


def test_a_full_disk_leaves_the_checkpoint_before_untouched(ranks, tmp_path):
    """Of RLIMIT_FSIZE the kernel makes what a full disk is to write(): an error in the middle of a file."""
    make_corpus(str(tmp_path / "corpus"), vocab_size=1024, largest_id=1023)
    whole, output = tmp_path / "whole", tmp_path / "out"
    [said] = ranks(1, "tests.training.run_ranks:pretrain", small_disk_flags(tmp_path / "corpus", whole))
    assert said["exit_code"] == 0, said["stderr"]
    shutil.copytree(whole / "checkpoint-2", output / "checkpoint-2")
    before = {file.name: file.read_bytes() for file in (output / "checkpoint-2").iterdir()}
    size = largest(output / "checkpoint-2").stat().st_size
    flags = small_disk_flags(tmp_path / "corpus", output)
    [said] = ranks(1, "tests.kills.ranks:train_with_small_disk", flags, size // 2)
    assert said["exit_code"] == 2 and "Traceback" not in said["stderr"]
    assert "checkpoint-4" in said["stderr"] and "Free the disk and start again" in said["stderr"]
    assert {file.name: file.read_bytes() for file in (output / "checkpoint-2").iterdir()} == before
    assert [path.name for path in checkpoints(output)] == ["checkpoint-2"]
    [said] = ranks(1, "tests.training.run_ranks:pretrain", flags)
    assert said["exit_code"] == 0, said["stderr"]
    assert hashes(output, 4) == hashes(whole, 4)
