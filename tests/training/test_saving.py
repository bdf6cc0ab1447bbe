"""When a run saves and ends: signals, time limit, save-now, a full disk, damaged and old checkpoints, async saving."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from launch.checkpoint.manifest import checkpoints, first_fault
from launch.checkpoint.output_directory import lock_output
from launch.reporting.records import read_train_log
from tests.distributed.cells import PRETRAINING
from tests.distributed.layouts import SINGLE, STAGE2, STAGE3, TP2
from tests.runs import as_words, load_weights

RANKS = "tests.training.saving_ranks"
USUAL = {"do_eval": 0, "save_steps": 100}
TWO = USUAL | {"save_steps": 2}
long = pytest.mark.long


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def trained(ranks, runs, out):
    """trained(("SIGTERM", 3), layout, **flags): what each rank said of a run into out, in which something happened on a
    rank after a step."""

    def run(event=("", 0), layout=SINGLE, rank: int = 0, environment=None, **flags) -> list[dict]:
        words = as_words(runs.words(PRETRAINING, layout, output_dir=out, **USUAL | flags))
        what, step = event
        return ranks(layout.processes, f"{RANKS}:pretrain", words, step, what, rank, environment=environment)

    return run


@pytest.fixture(scope="module")
def whole(runs) -> Path:
    """The output of a run with checkpoints after steps 2, 4 and 6."""
    return runs(PRETRAINING, **TWO).output


@pytest.fixture
def copied(whole, out) -> Path:
    return Path(shutil.copytree(whole, out, ignore=shutil.ignore_patterns("run.lock")))


def names(output: Path) -> list[str]:
    return sorted(path.name for path in output.glob("*checkpoint-*"))


def losses(output: Path) -> list[float]:
    return [record["loss"] for record in read_train_log(output) if "loss" in record]


def same_weights(output: Path, other: Path) -> bool:
    mine, theirs = load_weights(output), load_weights(other)
    return mine.keys() == theirs.keys() and all((mine[name] == theirs[name]).all() for name in theirs)


@pytest.mark.parametrize(("event", "rank"), [("SIGTERM", 1), pytest.param("SIGINT", 0, marks=long)])
def test_a_signal_to_one_rank_saves_and_ends_all_of_them(trained, out, event, rank):
    first, second = trained((event, 3), STAGE2, rank)
    for said in (first, second):
        assert (said["exit_code"], said["steps"]) == (0, [1, 2, 3]), said["stderr"]
    assert f"stopped by {event} after step 3 of 6; {out}/checkpoint-3 is whole.\nTo continue: " in first["stdout"]
    assert first_fault(out / "checkpoint-3") is None
    assert not (out / "model.safetensors").exists()  # it is not what the run was to make
    for said in trained(layout=STAGE2):
        assert (said["exit_code"], said["steps"]) == (0, [4, 5, 6])
    assert len(losses(out)) == 6 and (out / "model.safetensors").exists()


def test_the_time_limit(trained, out, tmp_path):
    [said] = trained(max_run_minutes=0.0001, environment={"LAUNCH_STOPPED_FILE": str(tmp_path / "stopped")})
    assert (said["exit_code"], said["steps"]) == (0, [1])
    assert "stopped by --max_run_minutes 0.0001 after step 1 of 6" in said["stdout"]
    assert (tmp_path / "stopped").exists()  # for the recipe
    assert names(out) == ["checkpoint-1"]


@long
def test_save_now_saves_and_goes_on(trained, whole, out):
    [said] = trained(("save-now", 3))
    assert said["exit_code"] == 0 and said["steps"][-1] == 6
    assert names(out) == ["checkpoint-3"] and not (out / "save-now").exists()
    assert losses(out) == losses(whole)


FREE = "checkpoint-2 is as it was. Free the disk and start again."
MEMORY = "checkpoint-2 is as it was. Leave more host memory to the ranks and start again."


@pytest.mark.parametrize(
    ("event", "layout", "flags", "told", "mend"),
    [
        ("disk full", SINGLE, {}, "rank 0: ", f"No space left on device | {FREE}"),
        *(
            pytest.param(*case, marks=long)
            for case in [
                ("disk full", SINGLE, {"use_async_save": 1}, "rank 0: ", f"No space left on device | {FREE}"),
                ("no report", STAGE2, {}, "rank 1: [Errno 28] No space left on device", FREE),
                ("no report", STAGE2, {"use_async_save": 1}, "rank 1: [Errno 28] No space left on device", FREE),
                ("no memory", SINGLE, {}, "rank 0: ", f"MemoryError | {MEMORY}"),
            ]
        ),
    ],
)
def test_a_save_that_fails_leaves_the_checkpoint_before_and_says_so(trained, out, event, layout, flags, told, mend):
    """Memory that ends is not taken for a disk; a rank that cannot even tell that it failed ends all."""
    for said in trained((event, 3), layout, layout.processes - 1, **TWO, **flags):
        assert said["exit_code"] == 2
        assert f"checkpoint-4 could not be written: {told}" in said["stderr"]
        assert all(words in said["stderr"] for words in mend.split(" | "))
    assert names(out) == ["checkpoint-2"] and first_fault(out / "checkpoint-2") is None


@long
def test_a_model_that_cannot_be_written_ends_all_ranks_and_the_next_start_writes_it(trained, out):
    """Under stage 3, where all ranks put each tensor together."""
    flags = {"save_steps": 6, "do_eval": 1, "eval_steps": 6}
    for said in trained(("no room for the model", 6), STAGE3, **flags):
        assert said["exit_code"] == 2
        assert "the model could not be written: model.safetensors: No space left on device. Free the" in said["stderr"]
    assert names(out) == ["checkpoint-6"] and not (out / "config.json").exists()
    for said in trained(layout=STAGE3, **flags):
        assert (said["exit_code"], said["steps"]) == (0, []), said["stderr"]
    assert load_weights(out).keys() == load_weights(out / "checkpoint-6").keys()
    assert not list(out.glob("*partial*"))
    assert sum("eval_loss" in record for record in read_train_log(out)) == 1


@long
@pytest.mark.parametrize("event", ["read-only", "read-only but for the log"])
def test_an_output_that_becomes_read_only(trained, out, event):
    """As Linux makes a disk after an error, and as chmod makes a folder, whose log can still be written."""
    [said] = trained((event, 3), **TWO)
    assert said["exit_code"] == 2 and said["stderr"].count("\n") == 1
    reason, mend = "[Errno 30] Read-only file system: '", "Make the output directory writable and start again.\n"
    if event == "read-only":
        assert said["stderr"] == f"error: {reason}{out}/train_log.jsonl'. The checkpoints are as they were. {mend}"
    else:
        fault = f"{out}/checkpoint-4 could not be written: {reason}{out}/partial-checkpoint-4"
        assert said["stderr"].startswith(f"error: {fault}")
        assert said["stderr"].endswith(f"Of the checkpoints before it, {out}/checkpoint-2 is as it was. {mend}")
    assert names(out) == ["checkpoint-2"] and first_fault(out / "checkpoint-2") is None


def test_a_directory_in_which_another_run_lives_is_refused(trained, out):
    out.mkdir()
    held = lock_output(out)
    [said] = trained()
    assert said["exit_code"] == 2 and f"{out} is in use by another run (process " in " ".join(said["stderr"].split())
    os.close(held)


@long
def test_a_start_that_is_refused_leaves_the_position_where_it_was(trained, runs, whole, copied, tmp_path):
    """Another model is found out when all is built and the checkpoint is read: the last that can refuse a run."""
    model = tmp_path / "model"
    shutil.copytree(runs.material / "model", model, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"num_hidden_layers": config["num_hidden_layers"] + 1}))
    log = (copied / "train_log.jsonl").read_bytes()
    [said] = trained(resume_from_checkpoint=whole / "checkpoint-2", model_name_or_path=model, continue_training=0)
    assert said["exit_code"] == 2 and "checkpoint-2" in said["stderr"], said["stderr"]
    assert names(copied) == names(whole) and not (copied / "earlier").exists()
    assert (copied / "train_log.jsonl").read_bytes() == log


@long
def test_saved_in_the_background_is_the_same(runs, whole):
    run = runs(PRETRAINING, **TWO, use_async_save=1)
    assert losses(run.output) == losses(whole)
    for checkpoint in checkpoints(whole):
        assert same_weights(run.output / checkpoint.name, checkpoint)
        assert first_fault(run.output / checkpoint.name) is None


@long
def test_old_checkpoints_go_when_the_new_one_is_whole(trained, out):
    [said] = trained(("disk full", 5), **TWO, save_total_limit=1)  # at the save of step 6, checkpoint-4 is still needed
    assert said["exit_code"] == 2 and names(out) == ["checkpoint-4"]


def test_a_damaged_checkpoint_is_named_kept_aside_and_the_one_before_continued(trained, whole, copied):
    weights = copied / "checkpoint-6" / "model-00001-of-00001.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    [said] = trained()
    assert said["exit_code"] == 0 and said["steps"] == [5, 6]
    assert f"warning: {weights} is not what was written: its SHA-256 differs" in said["stdout"]
    assert names(copied) == ["checkpoint-2", "checkpoint-4", "damaged-checkpoint-6"]
    assert losses(copied) == losses(whole)
    assert len((copied / "train_log.1.jsonl").read_text().splitlines()) == 6


@long
def test_a_start_that_is_refused_leaves_damaged_and_unfinished_checkpoints_where_they_were(trained, copied):
    """And a checkpoint with weights of somebody else, which is whole, is neither damaged nor passed over."""
    with open(copied / "checkpoint-6" / "model-00001-of-00001.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"?")
    (copied / "partial-checkpoint-8").mkdir()
    (copied / "checkpoint-4" / "pytorch_model.bin").write_text("mine")
    before = sorted(path.relative_to(copied) for path in copied.rglob("*"))
    [said] = trained()
    assert said["exit_code"] == 2 and said["stderr"] == (
        f"error: {copied}/checkpoint-4/pytorch_model.bin is not among the files of the checkpoint's manifest: move it "
        "elsewhere.\n"
    )
    (copied / "run.lock").unlink()
    assert sorted(path.relative_to(copied) for path in copied.rglob("*")) == before


@long
def test_starting_anew_keeps_what_was_there(trained, copied):
    (copied / "fit.json").write_text("{}")
    (copied / "pissa_start").mkdir()
    [said] = trained(overwrite_output_dir=1)
    assert said["exit_code"] == 0 and said["steps"] == [1, 2, 3, 4, 5, 6]
    assert names(copied) == [] and names(copied / "earlier") == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert (copied / "earlier" / "fit.json").read_text() == "{}" and not (copied / "fit.json").exists()
    assert (copied / "earlier" / "pissa_start").is_dir()


@long
def test_a_run_that_goes_back_keeps_what_it_made_after_that_step_elsewhere(trained, whole, copied):
    (copied / "fit.json").write_text("{}")
    (copied / "pissa_start").mkdir()
    for said in trained(layout=STAGE2, **TWO, resume_from_checkpoint=copied / "checkpoint-2"):
        assert (said["exit_code"], said["steps"]) == (0, [3, 4, 5, 6]), said["stderr"]
    assert names(copied) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert names(copied / "earlier") == ["checkpoint-4", "checkpoint-6"]
    for folder in (copied, copied / "earlier"):
        assert (folder / "fit.json").read_text() == "{}" and (folder / "pissa_start").is_dir()
    assert np.abs(np.array(losses(copied)) - losses(whole)).max() < 2e-6


@long
def test_a_run_that_starts_with_a_checkpoints_weights_alone_moves_it_and_reads_it_there(trained, whole, copied):
    [said] = trained(save_steps=3, ignore_load_lr_and_optim=1)
    assert (said["exit_code"], said["steps"]) == (0, [1, 2, 3, 4, 5, 6]), said["stderr"]
    assert names(copied) == ["checkpoint-3", "checkpoint-6"]
    assert names(copied / "earlier") == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert losses(copied)[0] != losses(whole)[0]  # of the same samples


def test_a_finished_run_has_nothing_left_to_do(trained, whole, copied):
    (copied / "model.safetensors").unlink()
    [said] = trained()
    assert said["exit_code"] == 0 and said["steps"] == []
    assert same_weights(copied, whole)


def test_a_checkpoint_on_one_process_is_a_model_directory(whole):
    """What from_pretrained reads, whose weights are those of the end, with the tokenizer; nothing in it is a pickle."""
    checkpoint = whole / "checkpoint-6"
    assert same_weights(checkpoint, whole)
    assert json.loads((checkpoint / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert {path.suffix for path in checkpoint.iterdir()} == {".json", ".safetensors", ".model"}


@pytest.mark.parametrize(
    "layout",
    [STAGE3, *(pytest.param(one, marks=pytest.mark.nightly) for one in (STAGE2, TP2))],
    ids=lambda layout: layout.name,
)
@long
def test_no_rank_needs_room_for_a_whole_model_to_save(ranks, runs, out, layout):
    """A checkpoint takes the largest tensor a few times beside half a megabyte, and so does the final model."""
    sizes = [tensor.nbytes for tensor in load_weights(runs.material / "large").values()]
    assert sum(sizes) > 20 * max(sizes)
    words = runs.words(PRETRAINING, layout, "large", output_dir=out, max_steps=1, save_steps=1, do_eval=0)
    for peaks in ranks(2, f"{RANKS}:peak_of_save", as_words(words)):
        assert peaks["_save_checkpoint"] < 4 * max(sizes) + 500_000, peaks
        assert peaks["save_model"] < 4 * max(sizes) + 500_000, peaks
