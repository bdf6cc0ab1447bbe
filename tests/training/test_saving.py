"""When a run saves and ends: signals, time limit, save-now, a full disk, damaged and old checkpoints, async saving."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from launch.checkpoint.manifest import checkpoints, first_fault
from launch.checkpoint.output_directory import lock_output
from launch.checkpoint.weight_files import find_weights
from launch.reporting.records import read_train_log

PRETRAIN = "tests.training.saving_ranks:pretrain"


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("saving")
    ranks(1, "tests.distributed.training_ranks:make_material", str(root), 4)
    return root


def argv(material: Path, output: Path, *changes: str) -> list[str]:
    flags = {
        "model_name_or_path": material / "model",
        "input_dir": material / "corpus",
        "split": "8,2,0",
        "output_dir": output,
        "max_seq_length": 32,
        "per_device_train_batch_size": 2,
        "max_steps": 6,
        "save_steps": 100,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "do_train": 1,
        "device": "cpu",
        "cpu_fast": "off",
        "report_to": "none",
    }
    return [*[word for name, value in flags.items() for word in (f"--{name}", str(value))], *changes]


def names(output: Path) -> list[str]:
    return sorted(path.name for path in output.glob("*checkpoint-*"))


def losses(output: Path) -> list[float]:
    return [record["loss"] for record in read_train_log(output)]


@pytest.fixture(scope="module")
def whole(ranks, material, tmp_path_factory) -> Path:
    """The output of a run with checkpoints after steps 2, 4 and 6."""
    output = tmp_path_factory.mktemp("whole") / "out"
    [said] = ranks(1, PRETRAIN, argv(material, output, "--save_steps", "2"))
    assert said["exit_code"] == 0, said["stderr"]
    return output


@pytest.mark.parametrize(("event", "rank"), [("SIGTERM", 1), ("SIGINT", 0)])
def test_a_signal_to_one_rank_saves_and_ends_all_of_them(ranks, material, tmp_path, event, rank):
    output = tmp_path / "out"
    flags = argv(material, output, "--sharding", "stage2")
    first, second = ranks(2, PRETRAIN, flags, 3, event, rank)
    for said in (first, second):
        assert (said["exit_code"], said["steps"]) == (0, [1, 2, 3]), said["stderr"]
    assert f"stopped by {event} after step 3 of 6; {output}/checkpoint-3 is whole.\nTo continue: " in first["stdout"]
    assert first_fault(output / "checkpoint-3") is None
    assert not (output / "model.safetensors").exists()  # it is not what the run was to make
    for said in ranks(2, PRETRAIN, flags):
        assert (said["exit_code"], said["steps"]) == (0, [4, 5, 6])
    assert len(losses(output)) == 6 and (output / "model.safetensors").exists()


def test_the_time_limit(ranks, material, tmp_path):
    stopped = {"LAUNCH_STOPPED_FILE": str(tmp_path / "stopped")}
    [said] = ranks(1, PRETRAIN, argv(material, tmp_path / "out", "--max_run_minutes", "0.0001"), environment=stopped)
    assert (said["exit_code"], said["steps"]) == (0, [1])
    assert "stopped by --max_run_minutes 0.0001 after step 1 of 6" in said["stdout"]
    assert (tmp_path / "stopped").exists()  # for the recipe
    assert names(tmp_path / "out") == ["checkpoint-1"]


def test_save_now_saves_and_goes_on(ranks, material, whole, tmp_path):
    output = tmp_path / "out"
    [said] = ranks(1, PRETRAIN, argv(material, output), 3, "save-now")
    assert said["exit_code"] == 0 and said["steps"][-1] == 6
    assert names(output) == ["checkpoint-3"] and not (output / "save-now").exists()
    assert losses(output) == losses(whole)


@pytest.mark.parametrize("asynchronous", ["0", "1"])
def test_a_full_disk_leaves_the_checkpoint_before_and_says_so(ranks, material, tmp_path, asynchronous):
    output = tmp_path / "out"
    flags = argv(material, output, "--save_steps", "2", "--use_async_save", asynchronous)
    [said] = ranks(1, PRETRAIN, flags, 3, "disk full")
    assert said["exit_code"] == 2
    assert "checkpoint-4 could not be written: rank 0: " in said["stderr"]
    assert "No space left on device" in said["stderr"]
    assert f"{output}/checkpoint-2 is as it was. Free the disk and start again." in said["stderr"]
    assert names(output) == ["checkpoint-2"] and first_fault(output / "checkpoint-2") is None


def test_a_model_that_cannot_be_written_ends_all_ranks_and_the_next_start_writes_it(ranks, material, tmp_path):
    """Under stage 3, where all ranks put each tensor together."""
    output = tmp_path / "out"
    flags = argv(material, output, "--save_steps", "6", "--sharding", "stage3", "--do_eval", "1", "--eval_steps", "6")
    for said in ranks(2, PRETRAIN, flags, 6, "no room for the model", 0):
        assert said["exit_code"] == 2
        assert "the model could not be written: model.safetensors: No space left on device. Free the" in said["stderr"]
    assert names(output) == ["checkpoint-6"] and not (output / "config.json").exists()
    for said in ranks(2, PRETRAIN, flags):
        assert (said["exit_code"], said["steps"]) == (0, []), said["stderr"]
    assert len(find_weights(output)) == len(find_weights(output / "checkpoint-6")) > 0
    assert not list(output.glob("*partial*"))
    assert sum("eval_loss" in record for record in read_train_log(output)) == 1


@pytest.mark.long
@pytest.mark.parametrize("event", ["half filled", "filled"])
def test_a_small_file_system_that_is_full(ranks, material, tmp_path, event):
    disk = tmp_path / "disk"
    disk.mkdir()
    flags = argv(material, disk / "out", "--save_steps", "2")
    [said] = ranks(1, "tests.training.saving_ranks:pretrain_on_a_small_disk", flags, str(disk), 16, event)
    if not said:
        pytest.skip("no file system can be mounted here")
    assert said["exit_code"] == 2
    assert "checkpoint-4 could not be written: rank 0: " in said["stderr"]
    assert "No space left on device" in said["stderr"] and "checkpoint-2 is as it was" in said["stderr"]
    assert said["faults"] == {"checkpoint-2": None}


@pytest.mark.parametrize("event", ["read-only", "read-only but for the log"])
def test_an_output_that_becomes_read_only(ranks, material, tmp_path, event):
    """As Linux makes a disk after an error, and as chmod makes a folder, whose log can still be written."""
    output = tmp_path / "out"
    [said] = ranks(1, PRETRAIN, argv(material, output, "--save_steps", "2"), 3, event)
    assert said["exit_code"] == 2 and said["stderr"].count("\n") == 1
    reason, mend = "[Errno 30] Read-only file system: '", "Make the output directory writable and start again.\n"
    if event == "read-only":
        assert said["stderr"] == f"error: {reason}{output}/train_log.jsonl'. The checkpoints are as they were. {mend}"
    else:
        fault = f"{output}/checkpoint-4 could not be written: {reason}{output}/partial-checkpoint-4"
        assert said["stderr"].startswith(f"error: {fault}")
        assert said["stderr"].endswith(f"Of the checkpoints before it, {output}/checkpoint-2 is as it was. {mend}")
    assert names(output) == ["checkpoint-2"] and first_fault(output / "checkpoint-2") is None


@pytest.mark.long
@pytest.mark.parametrize("asynchronous", ["0", "1"])
def test_a_rank_that_cannot_even_tell_that_it_failed_ends_all(ranks, material, tmp_path, asynchronous):
    flags = argv(material, tmp_path / "out", "--save_steps", "2", "--use_async_save", asynchronous)
    for said in ranks(2, PRETRAIN, flags, 3, "no report", 1):
        assert said["exit_code"] == 2
        assert "checkpoint-4 could not be written: rank 1: [Errno 28] No space left on device" in said["stderr"]
        assert "checkpoint-2 is as it was. Free the disk and start again." in said["stderr"]
    assert names(tmp_path / "out") == ["checkpoint-2"] and first_fault(tmp_path / "out" / "checkpoint-2") is None


@pytest.mark.long
def test_host_memory_that_ends_while_a_checkpoint_is_written_is_not_taken_for_a_disk(ranks, material, tmp_path):
    [said] = ranks(1, PRETRAIN, argv(material, tmp_path / "out", "--save_steps", "2"), 3, "no memory")
    assert said["exit_code"] == 2
    assert "checkpoint-4 could not be written: rank 0: " in said["stderr"] and "MemoryError" in said["stderr"]
    assert "checkpoint-2 is as it was. Leave more host memory to the ranks and start again." in said["stderr"]


def test_a_directory_in_which_another_run_lives_is_refused(ranks, material, tmp_path):
    (tmp_path / "out").mkdir()
    held = lock_output(tmp_path / "out")
    for said in ranks(2, PRETRAIN, argv(material, tmp_path / "out")):
        assert said["exit_code"] == 2 and f"{tmp_path}/out is in use by another run (process " in said["stderr"]
    os.close(held)


def test_a_start_that_is_refused_leaves_the_position_where_it_was(ranks, material, whole, tmp_path):
    """Another model is found out when all is built and the checkpoint is read: the last that can refuse a run."""
    output, model = tmp_path / "out", tmp_path / "model"
    shutil.copytree(whole, output, ignore=shutil.ignore_patterns("run.lock"))
    shutil.copytree(material / "model", model, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"num_hidden_layers": config["num_hidden_layers"] + 1}))
    log = (output / "train_log.jsonl").read_bytes()
    other = ["--resume_from_checkpoint", str(whole / "checkpoint-2"), "--model_name_or_path", str(model)]
    [said] = ranks(1, PRETRAIN, argv(material, output, *other, "--continue_training", "0"))
    assert said["exit_code"] == 2 and "checkpoint-2" in said["stderr"], said["stderr"]
    assert names(output) == names(whole) and not (output / "earlier").exists()
    assert (output / "train_log.jsonl").read_bytes() == log


def test_saved_in_the_background_is_the_same(ranks, material, whole, tmp_path):
    [said] = ranks(1, PRETRAIN, argv(material, tmp_path / "out", "--save_steps", "2", "--use_async_save", "1"))
    assert said["exit_code"] == 0 and losses(tmp_path / "out") == losses(whole)
    for checkpoint in checkpoints(whole):
        mine, other = (find_weights(place) for place in (tmp_path / "out" / checkpoint.name, checkpoint))
        assert all(np.array_equal(mine[name].open(), other[name].open()) for name in other)
        assert first_fault(tmp_path / "out" / checkpoint.name) is None


def test_old_checkpoints_go_when_the_new_one_is_whole(ranks, material, tmp_path):
    flags = argv(material, tmp_path / "out", "--save_steps", "2", "--save_total_limit", "1")
    [said] = ranks(1, PRETRAIN, flags, 5, "disk full")  # at the save of step 6, checkpoint-4 is still needed
    assert said["exit_code"] == 2 and names(tmp_path / "out") == ["checkpoint-4"]


def test_a_damaged_checkpoint_is_named_kept_aside_and_the_one_before_continued(ranks, material, whole, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(whole, output, ignore=shutil.ignore_patterns("run.lock"))
    weights = output / "checkpoint-6" / "model-00001-of-00001.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    [said] = ranks(1, PRETRAIN, argv(material, output))
    assert said["exit_code"] == 0 and said["steps"] == [5, 6]
    assert f"warning: {weights} is not what was written: its SHA-256 differs" in said["stdout"]
    assert names(output) == ["checkpoint-2", "checkpoint-4", "damaged-checkpoint-6"]
    assert losses(output) == losses(whole)
    assert len((output / "train_log.1.jsonl").read_text().splitlines()) == 6


def test_a_start_that_is_refused_leaves_damaged_and_unfinished_checkpoints_where_they_were(
    ranks, material, whole, tmp_path
):
    """And a checkpoint with weights of somebody else, which is whole, is neither damaged nor passed over."""
    output = tmp_path / "out"
    shutil.copytree(whole, output, ignore=shutil.ignore_patterns("run.lock"))
    with open(output / "checkpoint-6" / "model-00001-of-00001.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"?")
    (output / "partial-checkpoint-8").mkdir()
    (output / "checkpoint-4" / "pytorch_model.bin").write_text("mine")
    before = sorted(path.relative_to(output) for path in output.rglob("*"))
    [said] = ranks(1, PRETRAIN, argv(material, output))
    assert said["exit_code"] == 2 and said["stderr"] == (
        f"error: {output}/checkpoint-4/pytorch_model.bin is not among the files of the checkpoint's manifest: move it "
        "elsewhere.\n"
    )
    (output / "run.lock").unlink()
    assert sorted(path.relative_to(output) for path in output.rglob("*")) == before


def test_starting_anew_keeps_what_was_there(ranks, material, whole, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(whole, output)
    (output / "fit.json").write_text("{}")
    (output / "pissa_start").mkdir()
    [said] = ranks(1, PRETRAIN, argv(material, output, "--overwrite_output_dir", "1"))
    assert said["exit_code"] == 0 and said["steps"] == [1, 2, 3, 4, 5, 6]
    assert names(output) == [] and names(output / "earlier") == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert (output / "earlier" / "fit.json").read_text() == "{}" and not (output / "fit.json").exists()
    assert (output / "earlier" / "pissa_start").is_dir()


def test_a_run_that_goes_back_keeps_what_it_made_after_that_step_elsewhere(ranks, material, whole, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(whole, output)
    (output / "fit.json").write_text("{}")
    (output / "pissa_start").mkdir()
    back = ["--save_steps", "2", "--resume_from_checkpoint", str(output / "checkpoint-2")]
    for said in ranks(2, PRETRAIN, argv(material, output, *back, "--per_device_train_batch_size", "1")):
        assert (said["exit_code"], said["steps"]) == (0, [3, 4, 5, 6]), said["stderr"]
    assert names(output) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert names(output / "earlier") == ["checkpoint-4", "checkpoint-6"]
    for folder in (output, output / "earlier"):
        assert (folder / "fit.json").read_text() == "{}" and (folder / "pissa_start").is_dir()
    assert np.abs(np.array(losses(output)) - losses(whole)).max() < 2e-6


@pytest.mark.long
def test_a_run_that_starts_with_a_checkpoints_weights_alone_moves_it_and_reads_it_there(
    ranks, material, whole, tmp_path
):
    output = tmp_path / "out"
    shutil.copytree(whole, output)
    [said] = ranks(1, PRETRAIN, argv(material, output, "--save_steps", "3", "--ignore_load_lr_and_optim", "1"))
    assert (said["exit_code"], said["steps"]) == (0, [1, 2, 3, 4, 5, 6]), said["stderr"]
    assert names(output) == ["checkpoint-3", "checkpoint-6"]
    assert names(output / "earlier") == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert losses(output)[0] != losses(whole)[0]  # of the same samples


def test_a_finished_run_has_nothing_left_to_do(ranks, material, whole, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(whole, output)
    (output / "model.safetensors").unlink()
    [said] = ranks(1, PRETRAIN, argv(material, output))
    assert said["exit_code"] == 0 and said["steps"] == []
    mine, other = (find_weights(place) for place in (output, whole))
    assert all(np.array_equal(mine[name].open(), other[name].open()) for name in other)


def test_a_checkpoint_on_one_process_is_a_model_directory(ranks, material, whole):
    """What from_pretrained reads, whose weights are those of the end."""
    at_the_end, model = (find_weights(place) for place in (whole / "checkpoint-6", whole))
    assert at_the_end.keys() == model.keys()
    assert all(np.array_equal(at_the_end[name].open(), model[name].open()) for name in model)
    assert json.loads((whole / "checkpoint-6" / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]


def test_nothing_in_a_checkpoint_is_a_pickle(whole):
    kinds = {path.suffix for path in (whole / "checkpoint-6").iterdir()}
    assert kinds == {".json", ".safetensors"}


@pytest.mark.parametrize("layout", ["--sharding stage2", "--sharding stage3", "--tensor_parallel_degree 2"])
def test_no_rank_needs_room_for_a_whole_model_to_save(ranks, tmp_path, layout):
    """A checkpoint takes the largest tensor a few times beside half a megabyte, and so does the final model."""
    ranks(1, "tests.training.saving_ranks:make_larger_material", str(tmp_path))
    model = {name: stored.nbytes for name, stored in find_weights(tmp_path / "model").items()}
    largest = max(model.values())
    assert sum(model.values()) > 20 * largest
    for peaks in ranks(2, "tests.training.saving_ranks:peak_of_save", str(tmp_path), layout.split()):
        assert peaks["_save_checkpoint"] < 4 * largest + 500_000, peaks
        assert peaks["save_model"] < 4 * largest + 500_000, peaks
