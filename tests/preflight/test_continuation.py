"""Which checkpoint a run continues from: auto, none, a path; beside --overwrite_output_dir; at the same batch."""

import json
from pathlib import Path

import pytest

from launch.checkpoint.state.manifest import MANIFEST, Manifest
from launch.preflight.continuation import check_continuation, goes_on_from
from launch.preflight.situation import Situation
from launch.processes.flags import parse_flags


def make_checkpoint(output: Path, step: int) -> Path:
    """Of two processes, after steps of 16 samples; its files have sizes, no hashes."""
    checkpoint = output / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "run.json").write_text("{}")
    manifest = Manifest(
        files={"run.json": {"bytes": 2, "sha256": ""}},
        global_step=step,
        consumed_samples=16 * step,
        consumed_tokens=1600 * step,
        topology={"processes": 2},
        data={"global_batch": 16},
    )
    (checkpoint / MANIFEST).write_text(manifest.to_json())
    return checkpoint


@pytest.fixture
def output(tmp_path) -> Path:
    """Of an earlier run, with two checkpoints."""
    (tmp_path / "train_log.jsonl").write_text("{}")
    for step in (5, 10):
        make_checkpoint(tmp_path, step)
    return tmp_path


def situation(output: Path, flags: str = "", processes: int = 2) -> Situation:
    words = f"--do_train 1 --per_device_train_batch_size 8 --output_dir {output} {flags}".split()
    return Situation("run_pretrain", parse_flags(words), processes=processes)


def findings(output: Path, flags: str = "", processes: int = 2):
    return check_continuation(situation(output, flags, processes))


def told(output: Path, flags: str = "", processes: int = 2) -> list[tuple[bool, str]]:
    return [(one.ok, one.found.replace(f"{output}/", "")) for one in findings(output, flags, processes)]


NEWEST = (True, "checkpoint-10, after step 10 and 160 samples")


def test_the_newest_is_continued_unasked_and_a_named_one_where_it_is_named(output):
    assert told(output) == told(output, "--resume_from_checkpoint auto") == [NEWEST]
    named = told(output, f"--resume_from_checkpoint {output}/checkpoint-5")
    assert named == [(True, "checkpoint-5, after step 5 and 80 samples")]


def test_the_same_command_goes_on_where_the_next_one_would(output, tmp_path):
    assert goes_on_from(situation(output)) == output / "checkpoint-10"
    (output / "checkpoint-10" / "run.json").write_text("{")
    assert goes_on_from(situation(output)) == output / "checkpoint-5"
    for anew in ("--overwrite_output_dir 1", "--resume_from_checkpoint none", "--do_train 0"):
        assert goes_on_from(situation(output, anew)) is None
    assert goes_on_from(situation(tmp_path / "new")) is None


def test_the_one_before_a_damaged_one_is_taken(output):
    (output / "checkpoint-10" / "run.json").write_text("{")
    damaged, taken = told(output)
    assert damaged == (
        True,
        "checkpoint-10/run.json has 1 bytes, the manifest says 2: it is kept as damaged, the checkpoint before it is "
        "taken",
    )
    assert taken == (True, "checkpoint-5, after step 5 and 80 samples")
    [named] = findings(output, f"--resume_from_checkpoint {output}/checkpoint-10")
    assert not named.ok and "run.json has 1 bytes" in named.found


def test_without_a_manifest_it_is_not_whole(output):
    (output / "checkpoint-10" / MANIFEST).unlink()
    assert "checkpoint-10 is not whole: it has no manifest.json" in told(output)[0][1]


def test_what_is_no_checkpoint_names_the_newest_that_is(output):
    [finding] = findings(output, "--resume_from_checkpoint True")
    assert not finding.ok and finding.found.startswith("True is no checkpoint to continue from")
    assert finding.fix == f"--resume_from_checkpoint {output}/checkpoint-10, or auto"


def test_a_checkpoint_of_paddlenlp_is_told_and_not_continued(output, tmp_path):
    foreign = output / "checkpoint-20"
    foreign.mkdir()
    (foreign / "trainer_state.json").write_text(json.dumps({"global_step": 20}))
    assert told(output) == [(True, "checkpoint-20 is PaddleNLP's own and is not continued"), NEWEST]
    [finding] = findings(output, f"--resume_from_checkpoint {foreign}")
    assert not finding.ok and finding.fix == f"start from its weights: --model_name_or_path {foreign}"


def test_none_refuses_to_write_into_an_earlier_run(output):
    [finding] = findings(output, "--resume_from_checkpoint none")
    assert not finding.ok and "holds an earlier run" in finding.found
    assert "--resume_from_checkpoint auto continues it; --overwrite_output_dir 1 starts anew" in finding.fix


def test_starting_anew_says_what_becomes_of_the_checkpoints(output):
    for none in ("", "--resume_from_checkpoint none"):
        assert told(output, f"--overwrite_output_dir 1 {none}") == [
            (True, "starts at step 0; 2 checkpoints are moved to earlier")
        ]


def test_starting_anew_and_continuing_exclude_each_other(output):
    for wanted in ("auto", str(output / "checkpoint-5")):
        [finding] = findings(output, f"--overwrite_output_dir 1 --resume_from_checkpoint {wanted}")
        assert not finding.ok and "one continues a run, the other starts at step 0" in finding.found


def test_a_finished_run_without_checkpoints_is_not_overwritten(tmp_path):
    (tmp_path / "train_log.jsonl").write_text("{}")
    assert told(tmp_path) == []  # it ended before its first checkpoint
    (tmp_path / "run_summary.json").write_text("{}")
    [finding] = findings(tmp_path)
    assert not finding.ok and "--overwrite_output_dir 1" in finding.fix


def test_another_batch_would_move_the_position_in_the_data(output):
    [(ok, found)] = told(output, "--gradient_accumulation_steps 2")
    assert not ok and found == "32 samples a step, the 10 steps before took 16 each"


def test_another_division_of_the_same_batch_is_none(output):
    assert told(output, "--tensor_parallel_degree 2 --gradient_accumulation_steps 2") == [NEWEST]


def test_random_numbers_of_another_number_of_processes(output):
    batch, random = told(output, "--per_device_train_batch_size 4", processes=4)
    assert batch == NEWEST and random == (
        True,
        "random numbers (dropout) begin anew: 2 processes saved theirs, now there are 4",
    )


def test_nothing_to_tell_without_training(output):
    assert check_continuation(Situation("run_pretrain", {})) == []
    assert check_continuation(Situation("run_pretrain", {"output_dir": [str(output)]})) == []
