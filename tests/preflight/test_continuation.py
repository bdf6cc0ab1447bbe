"""Which checkpoint a run continues from: auto, none, a path; beside --overwrite_output_dir; at the same batch."""

import json
import os
import shutil
from pathlib import Path

import pytest

from data_tools.formats.tokens.blend import training_identities
from launch.checkpoint.continuation import Continuation
from launch.checkpoint.manifest import MANIFEST, Manifest
from launch.checkpoint.model_identity import model_identity
from launch.checkpoint.output_directory import active_run, lock_output, remove_partial
from launch.config.flag_values import parse_flags
from launch.config.run_config import RunConfig
from launch.families.named_configs import load_config
from launch.preflight import resume
from tests.corpora import write_corpus


def make_checkpoint(
    output: Path, step: int, data: dict | None = None, model: str = "llama-rehearsal", **changes
) -> Path:
    """Of two processes and a named model with `changes`, after steps of 16 samples, of `data`; its files have sizes, no
    hashes."""
    checkpoint = output / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "run.json").write_text("{}")
    manifest = Manifest(
        files={"run.json": {"bytes": 2, "sha256": ""}},
        global_step=step,
        consumed_samples=16 * step,
        consumed_tokens=1600 * step,
        topology={"processes": 2},
        data={"global_batch": 16} | (data or {}),
        model=model_identity(load_config(model) | changes),
        arguments={"optim": "adamw"},
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


def situation(output: Path, flags: str = "", processes: int = 2) -> RunConfig:
    words = f"--do_train 1 --per_device_train_batch_size 8 --output_dir {output} {flags}".split()
    return RunConfig("run_pretrain", parse_flags(words), processes=processes)


def check_continuation(run: RunConfig):
    return resume.check_continuation(run, Continuation.of(run.flags))


def already_done(run: RunConfig) -> str:
    return resume.already_done(run, Continuation.of(run.flags))


def goes_on_from(run: RunConfig) -> Path | None:
    return Continuation.of(run.flags).checkpoint


def findings(output: Path, flags: str = "", processes: int = 2):
    return check_continuation(situation(output, flags, processes))


def told(output: Path, flags: str = "", processes: int = 2) -> list[tuple[bool, str]]:
    return [(one.ok, one.found.replace(f"{output}/", "")) for one in findings(output, flags, processes)]


NEWEST = (True, "checkpoint-10, after step 10 and 160 samples")


ANEW = "starts at step 0; 2 checkpoints are moved to earlier"
EXCLUDED = "one continues a run, the other starts at step 0"


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("", [NEWEST]),
        ("--resume_from_checkpoint auto", [NEWEST]),
        ("--resume_from_checkpoint OUT/checkpoint-5", [(True, "checkpoint-5, after step 5 and 80 samples")]),
        ("--overwrite_output_dir 1", [(True, ANEW)]),
        ("--overwrite_output_dir 1 --resume_from_checkpoint none", [(True, ANEW)]),
        ("--overwrite_output_dir 1 --resume_from_checkpoint auto", [(False, EXCLUDED)]),
        ("--overwrite_output_dir 1 --resume_from_checkpoint OUT/checkpoint-5", [(False, EXCLUDED)]),
        ("--resume_from_checkpoint none", [(False, "holds an earlier run")]),
        ("--resume_from_checkpoint True", [(False, "True is no checkpoint to continue from")]),
        # Another batch would move the position in the data; another division of the same batch does not.
        ("--gradient_accumulation_steps 2", [(False, "32 samples a step, the 10 steps before took 16 each")]),
        ("--tensor_parallel_degree 2 --gradient_accumulation_steps 2", [NEWEST]),
        ("--model_name_or_path llama-rehearsal", [NEWEST]),
    ],
)
def test_which_checkpoint_is_continued(output, flags, found):
    now = told(output, flags.replace("OUT", str(output)))
    assert [ok for ok, _ in now] == [ok for ok, _ in found]
    assert all(part in text for (_, text), (_, part) in zip(now, found, strict=True)), now


def test_the_model_that_is_trained_is_not_replaced(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    for flags in ("", "--overwrite_output_dir 1", "--resume_from_checkpoint none"):
        [one] = findings(tmp_path, f"--model_name_or_path {tmp_path}/link {flags}")
        assert (one.ok, one.fix) == (False, "OUTPUT=FOLDER names another")
        assert one.found == f"{tmp_path} holds the model that is trained, which its result would replace"


def test_what_mends_it_is_told(output, tmp_path):
    """The newest checkpoint that there is, in a form that can be pasted."""
    [none] = findings(output, "--resume_from_checkpoint none")
    assert "--resume_from_checkpoint auto continues it; --overwrite_output_dir 1 starts anew" in none.fix
    [unknown] = findings(output, "--resume_from_checkpoint True")
    assert unknown.fix == f"--resume_from_checkpoint {output}/checkpoint-10, or auto"
    make_checkpoint(tmp_path / "my run", 5)
    flags = parse_flags(["--do_train", "1", "--output_dir", str(tmp_path / "my run"), "--resume_from_checkpoint", "x"])
    [finding] = check_continuation(RunConfig("run_pretrain", flags, processes=2))
    assert finding.fix == f"--resume_from_checkpoint '{tmp_path}/my run/checkpoint-5', or auto"


def test_the_same_command_goes_on_where_the_next_one_would(output, tmp_path):
    assert goes_on_from(situation(output)) == output / "checkpoint-10"
    (output / "checkpoint-10" / "run.json").write_text("{")
    assert goes_on_from(situation(output)) == output / "checkpoint-5"
    for anew in ("--overwrite_output_dir 1", "--resume_from_checkpoint none", "--do_train 0"):
        assert goes_on_from(situation(output, anew)) is None
    assert goes_on_from(situation(tmp_path / "new")) is None


@pytest.mark.parametrize(
    ("file", "change", "found"),
    [
        (
            "run.json",
            lambda text: "{",
            "checkpoint-10/run.json has 1 bytes, the manifest says 2: it is kept as damaged,",
        ),
        (MANIFEST, lambda text: text.replace('"topology"', '"topolOgy"'), "makes no sense: it is kept as damaged, the"),
        (MANIFEST, None, "checkpoint-10 is not whole: it has no manifest.json"),
    ],
)
def test_the_one_before_a_damaged_one_is_taken(output, file, change, found):
    path = output / "checkpoint-10" / file
    path.write_text(change(path.read_text())) if change else path.unlink()
    damaged, taken = told(output)
    assert damaged[0] and found in damaged[1]
    assert taken == (True, "checkpoint-5, after step 5 and 80 samples")
    [named] = findings(output, f"--resume_from_checkpoint {output}/checkpoint-10")
    assert not named.ok


def test_weights_beside_a_whole_checkpoint_refuse_the_start(output):
    for wanted in ("auto", output / "checkpoint-10"):
        (output / "checkpoint-10" / "._model-00001-of-00001.safetensors").write_text("")  # of macOS
        assert told(output, f"--resume_from_checkpoint {wanted}") == [NEWEST]
        (output / "checkpoint-10" / "more.bin").write_text("")
        [one] = findings(output, f"--resume_from_checkpoint {wanted}")
        found = f"{output}/checkpoint-10/more.bin is not among the files of the checkpoint's manifest"
        assert (one.ok, one.found, one.fix) == (False, found, "move it elsewhere")
        (output / "checkpoint-10" / "more.bin").unlink()


def test_a_checkpoint_of_paddlenlp_is_told_and_not_continued(output):
    foreign = output / "checkpoint-20"
    foreign.mkdir()
    (foreign / "trainer_state.json").write_text(json.dumps({"global_step": 20}))
    assert told(output) == [(True, "checkpoint-20 is PaddleNLP's own and is not continued"), NEWEST]
    [finding] = findings(output, f"--resume_from_checkpoint {foreign}")
    assert not finding.ok and finding.fix == f"start from its weights: --model_name_or_path {foreign}"


def test_a_finished_run_without_checkpoints_is_not_overwritten(tmp_path):
    (tmp_path / "train_log.jsonl").write_text("{}")
    assert told(tmp_path) == []  # it ended before its first checkpoint
    (tmp_path / "run_summary.json").write_text("{}")
    [finding] = findings(tmp_path)
    assert not finding.ok and "--overwrite_output_dir 1" in finding.fix


@pytest.mark.parametrize(
    ("changed", "told_as"),
    [
        ("", None),
        ("--input_dir OTHER", "corpus "),
        ("--input_dir BOTH", "2 corpora, was 1"),
        ("--seed 7", "seed 7, was 1"),
        ("--max_seq_length 64", "sequence_length 64, was 32"),
        ("--split 1,1,0", "documents [0, 5], was [0, 8]"),
        ("--seed 7 --resume_changed data", None),
        ("--seed 7 --ignore_load_lr_and_optim 1", None),
    ],
)
def test_other_data_than_the_run_has_read_so_far(tmp_path, changed, told_as):
    for number, folder in enumerate(("DATA", "OTHER", "BOTH", "BOTH")):
        write_corpus(tmp_path / folder / f"corpus{number}", documents=10, tokens=100, largest_id=50 + number)
    [data] = training_identities(tmp_path / "DATA", "8,2,0", 32, 1)
    make_checkpoint(tmp_path, 5, data | {"samples": 25, "order_seed": 1})
    flags = f"--input_dir DATA --split 8,2,0 --max_seq_length 32 --seed 1 {changed}"
    for folder in ("DATA", "OTHER", "BOTH"):
        flags = flags.replace(folder, str(tmp_path / folder))
    faults = [one for one in findings(tmp_path, flags) if not one.ok]
    assert [(one.subject, told_as in one.found) for one in faults] == ([("data", True)] if told_as else [])
    assert all("--resume_changed data goes on with these" in one.fix for one in faults)


def test_another_kind_of_optimizer_is_refused(output):
    [fault] = [one for one in findings(output, "--optim adafactor") if not one.ok]
    assert fault.found == "--optim is adafactor, and the checkpoint has the state of adamw, which it cannot continue"
    assert fault.fix == "--optim adamw; or --ignore_load_lr_and_optim 1, from step 0"
    for flags in ("--optim adamw_16bit_moment", "--optim adafactor --ignore_load_lr_and_optim 1"):
        assert all(one.ok for one in findings(output, flags))


def test_random_numbers_of_another_number_of_processes(output):
    batch, random = told(output, "--per_device_train_batch_size 4", processes=4)
    assert batch == NEWEST and random == (
        True,
        "random numbers (dropout) begin anew: 2 processes saved theirs, now there are 4",
    )


@pytest.mark.parametrize("name", ["checkpoint-24", "partial-checkpoint-24", "partial-model"])
def test_a_file_in_the_place_of_a_save_is_refused_at_the_start(output, name):
    (output / name).write_text("mine")
    for flags in ("", "--overwrite_output_dir 1", "--resume_from_checkpoint none"):
        [one] = findings(output, flags)
        assert (one.ok, one.fix) == (False, "move it elsewhere")
        assert one.found == f"{output / name} is a file, in the place of what the run writes"
    remove_partial(output)
    assert (output / name).read_text() == "mine"


def test_a_directory_in_the_place_of_a_file_is_refused_at_the_start(tmp_path):
    for name in ("model.safetensors", "config.json", "train_log.jsonl"):
        (tmp_path / name).mkdir()
        assert told(tmp_path) == [(False, f"{name} is a directory, in the place of what the run writes")]
        (tmp_path / name).rmdir()


def test_what_a_lock_or_a_checkpoint_would_be_written_through_is_refused(tmp_path):
    """The target of a link called run.lock was overwritten; a FIFO was waited for, without an end."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name, kind, make in (
        ("run.lock", "a link", lambda path: path.symlink_to(mine)),
        ("checkpoint-4", "a link", lambda path: path.symlink_to("gone")),
        ("run.lock", "a special file", os.mkfifo),
        ("start.lock", "a directory", Path.mkdir),
    ):
        make(tmp_path / name)
        assert told(tmp_path) == [(False, f"{name} is {kind}, in the place of what the run writes")]
        assert active_run(tmp_path) is None
        (tmp_path / name).rmdir() if kind == "a directory" else (tmp_path / name).unlink()
    (tmp_path / "run.lock").symlink_to(mine)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        lock_output(tmp_path)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(("key", "value", "was"), [("num_hidden_layers", 3, 4), ("rope_theta", 2e4, 1e4)])
def test_another_model_is_refused_before_the_start(output, tmp_path, key, value, was):
    (tmp_path / "other.json").write_text(json.dumps(load_config("llama-rehearsal") | {key: value}))
    model = f"--model_name_or_path {tmp_path / 'other.json'}"
    assert told(output, model)[-1] == (False, f"not the model of the run so far: {key} {value}, was {was}")
    for accepted in ("--resume_changed model", "--ignore_load_lr_and_optim 1"):
        found = f"from here on another model: {key} {value}, was {was}"
        assert told(output, f"{model} {accepted}")[-1] == (True, found)


def test_a_fresh_model_with_its_tokenizers_vocabulary_is_the_same(output, tmp_path):
    """The configuration file has 1,024 ids, the run 256."""
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "vocab.json").write_text(json.dumps({f"<{number}>": number for number in range(250)}))
    words = f"--model_name_or_path llama-rehearsal --continue_training 0 --tokenizer_name_or_path {tmp_path}/tokenizer"
    shutil.rmtree(output / "checkpoint-10")
    make_checkpoint(output, 10, vocab_size=256)
    assert told(output, words) == [NEWEST]
    assert told(output, "--model_name_or_path llama-rehearsal")[-1][1].endswith("vocab_size 1024, was 256")


@pytest.mark.parametrize(
    ("flags", "logged", "done"),
    [
        ("--max_steps 12", 12, True),
        ("--max_steps 12 --resume_from_checkpoint none", 12, False),
        ("--max_steps 12 --overwrite_output_dir 1", 12, False),
        ("--max_steps 13", 12, False),
        ("--max_steps 12", 11, False),  # begun anew since: the summary is of the run before
        ("--num_train_epochs 2", 12, False),
    ],
)
def test_a_finished_run_is_not_made_again_from_an_older_checkpoint(output, flags, logged, done):
    arguments = {"TrainingArguments": {"max_steps": 12, "num_train_epochs": 3.0}, "DataArguments": {}}
    (output / "run_summary.json").write_text(json.dumps({"global_step": 12, "arguments": arguments}))
    (output / "train_log.jsonl").write_text(json.dumps({"global_step": logged, "loss": 1.0}) + "\n")
    assert already_done(situation(output, flags)) == "", "its weights are gone"
    (output / "model-00001-of-00001.safetensors").touch()
    said = already_done(situation(output, flags))
    assert said.startswith(f"{output}: already done at step 12. --max_steps N") == done and bool(said) == done
    make_checkpoint(output, 12)
    assert already_done(situation(output, flags)) == "", "the last step has its checkpoint"
    shutil.rmtree(output / "checkpoint-12")
    arguments["TrainingArguments"] |= {"max_steps": -1, "num_train_epochs": 2.0}
    (output / "run_summary.json").write_text(json.dumps({"global_step": 12, "arguments": arguments}))
    assert bool(already_done(situation(output, "--num_train_epochs 2"))) == (logged == 12)
