"""run_pretrain.py as a user meets it: what it writes, and what it says to mistakes."""

import json
import math
import re

import pytest

from launch.reporting.records import TRAIN_LOG, read_summary, read_train_log
from tests.training.run_ranks import make_corpus

PRETRAIN = "tests.training.run_ranks:pretrain"


def argv(corpus, output, **changes) -> list[str]:
    flags = {
        "model_name_or_path": "llama-rehearsal",
        "continue_training": 0,
        "input_dir": corpus,
        "split": "8,2,0",
        "output_dir": output,
        "max_seq_length": 32,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 3,
        "max_steps": 5,
        "logging_steps": 2,
        "do_train": 1,
        "do_eval": 1,
        "device": "cpu",
        "report_to": "visualdl",
    } | changes
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("data") / "corpus"
    make_corpus(str(prefix), vocab_size=1024, largest_id=1023)
    return prefix


@pytest.fixture(scope="module")
def finished(ranks, corpus, tmp_path_factory):
    """A run of five steps: (output directory, what it said)."""
    output = tmp_path_factory.mktemp("run") / "output"
    [said] = ranks(1, PRETRAIN, argv(corpus, output))
    assert said["exit_code"] == 0, said["stderr"]
    return output, said["stdout"]


def refused(ranks, *words) -> str:
    """The error of a run that must not start."""
    [said] = ranks(1, PRETRAIN, *words)
    assert said["exit_code"] == 2
    assert "Traceback" not in said["stderr"]
    return said["stderr"]


def test_the_log_has_the_first_the_logged_and_the_last_step(finished):
    records = [record for record in read_train_log(finished[0]) if "loss" in record]
    assert [record["global_step"] for record in records] == [1, 2, 4, 5]
    assert records[-1]["progress"] == 1.0
    assert records[-1]["consumed_samples"] == 20
    assert records[-1]["consumed_tokens"] == 640
    assert records[-1]["eta_seconds"] == 0


def test_samples_of_one_token(ranks, corpus, tmp_path):
    [said] = ranks(1, PRETRAIN, argv(corpus, tmp_path / "out", max_seq_length=1, max_steps=2, do_eval=0))
    assert said["exit_code"] == 0, said["stderr"]
    records = [record for record in read_train_log(tmp_path / "out") if "loss" in record]
    assert [record["consumed_tokens"] for record in records] == [4, 8]
    assert all(abs(record["loss"] - math.log(1024)) < 0.5 for record in records)


def test_losses_keep_all_their_digits(finished):
    import numpy as np

    first = read_train_log(finished[0])[0]
    assert first["loss"] == float(np.float32(first["loss"]))  # step 1 alone: exactly what float32 held
    assert round(first["loss"], 6) != first["loss"]


def test_the_terminal_shows_the_records(finished):
    output, stdout = finished
    last = read_train_log(output)[-2]
    [line] = [line for line in stdout.splitlines() if line.startswith("step 5/5")]
    assert f"loss {last['loss']:.4f}" in line and f"MFU {last['mfu']:.1%}" in line and "ETA 0s" in line
    # 40 documents, of which 32 train: 3200 tokens give 99 samples of 32 (+1), 24.75 steps of 4
    assert "steps: 5 of 128 tokens (4 samples of 32), 24.8 steps an epoch, 0.20 epochs" in stdout


def test_the_summary_says_how_it_began_and_ended(finished):
    output, _ = finished
    summary = read_summary(output)
    records = [record for record in read_train_log(output) if "loss" in record]
    assert summary["first_loss"] == records[0]["loss"]
    assert summary["last_loss"] == records[-1]["loss"]
    assert summary["global_step"] == 5
    assert summary["evaluation"]["eval_tokens"] == 24 * 32  # 8 documents: 800 tokens
    assert summary["versions"]["paddlepaddle"] and summary["topology"]["processes"] == 1
    text = json.dumps(summary)
    assert text.count('"first_loss') == text.count('"last_loss') == 1


def test_visualdl_holds_the_same_losses(finished):
    from visualdl import LogReader

    output, _ = finished
    [log] = output.rglob("vdlrecords.*.log")
    scalars = LogReader(file_path=str(log)).get_data("scalar", "train/loss")
    records = [record for record in read_train_log(output) if "loss" in record]
    assert [scalar.id for scalar in scalars] == [1, 2, 4, 5]
    for scalar, record in zip(scalars, records, strict=True):
        assert scalar.value == pytest.approx(record["loss"], rel=1e-6)


def test_an_earlier_run_is_kept(ranks, corpus, finished):
    output, _ = finished
    log = (output / TRAIN_LOG).read_bytes()
    assert "--overwrite_output_dir 1" in refused(ranks, argv(corpus, output))
    assert (output / TRAIN_LOG).read_bytes() == log
    [said] = ranks(1, PRETRAIN, argv(corpus, output, max_steps=1, overwrite_output_dir=1))
    assert said["exit_code"] == 0
    assert (output / "train_log.1.jsonl").read_bytes() == log
    assert read_train_log(output)[0]["global_step"] == 1


def test_planned_and_measured_memory_stand_side_by_side(finished):
    _, said = finished
    assert re.search(r"memory: \S+ MiB planned, \S+ MiB at the first step's peak \(the plan is of Paddle's", said)


def test_repeated_data_is_announced(ranks, corpus, tmp_path):
    [said] = ranks(1, PRETRAIN, argv(corpus, tmp_path / "out", max_steps=15, per_device_train_batch_size=8))
    assert "warning: --max_steps 15 reads each sample 1.2 times" in said["stdout"]


@pytest.mark.parametrize(
    ("processes", "flags"), [(1, {}), pytest.param(2, {"sharding": "stage3 offload"}, marks=pytest.mark.long)]
)
def test_an_adapter_is_read_back_and_tried_before_the_run_ends(ranks, corpus, tmp_path, processes, flags):
    flags = flags | {"lora": 1, "lora_rank": 4, "max_steps": 4, "per_device_train_batch_size": 2}
    first = ranks(processes, PRETRAIN, argv(corpus, tmp_path / "out", **flags))[0]
    assert first["exit_code"] == 0, first["stderr"]
    line = r"adapter read back from \S+: (\d+) tensors as trained, (\d+) of them not as at the"
    told = re.search(line, first["stdout"])
    assert told[1] == told[2] == "56"
    assert "largest difference of the logits of 2 training samples 0\n" in first["stdout"]


def test_a_blend_tells_how_much_of_each_corpus_it_uses(ranks, corpus, tmp_path):
    make_corpus(str(tmp_path / "other"), vocab_size=1024, largest_id=1023)
    blend = f"0.75 {corpus} 0.25 {tmp_path / 'other'}"
    [said] = ranks(1, PRETRAIN, argv(blend, tmp_path / "out", max_steps=1))
    assert said["exit_code"] == 0, said["stderr"]
    # 99 training samples each: three of the first for one of the other until the first is used up
    assert "blend: an epoch uses 99 of 99, 33 of 99 samples of its corpora" in said["stdout"]


def test_an_unknown_flag_names_the_nearest(ranks, corpus, tmp_path):
    error = refused(ranks, argv(corpus, tmp_path / "out", max_stepz=3))
    assert "--max_stepz unknown flag" in error and "did you mean --max_steps?" in error
    assert not (tmp_path / "out").exists()


def test_missing_data_names_what_was_looked_for(ranks, tmp_path):
    error = refused(ranks, argv(tmp_path / "nowhere", tmp_path / "out"))
    assert "no data at" in error and "python -m data_tools.tokenize" in error
    assert not (tmp_path / "out").exists()


def test_a_truncated_bin_is_refused(ranks, corpus, tmp_path):
    (tmp_path / "short.bin").write_bytes(corpus.with_suffix(".bin").read_bytes()[:-2])
    (tmp_path / "short.idx").write_bytes(corpus.with_suffix(".idx").read_bytes())
    error = refused(ranks, argv(tmp_path / "short", tmp_path / "out"))
    assert "short.bin" in error and "8000" in error and "7998" in error


def test_the_index_of_another_file_is_refused(ranks, corpus, tmp_path):
    make_corpus(str(tmp_path / "other"), vocab_size=100_000, largest_id=7)
    (tmp_path / "mixed.bin").write_bytes(corpus.with_suffix(".bin").read_bytes())
    (tmp_path / "mixed.idx").write_bytes((tmp_path / "other.idx").read_bytes())
    assert "mixed.bin" in refused(ranks, argv(tmp_path / "mixed", tmp_path / "out"))


def test_an_id_beyond_the_vocabulary_is_refused_with_its_file(ranks, tmp_path):
    make_corpus(str(tmp_path / "large"), vocab_size=2000, largest_id=1024)
    error = refused(ranks, argv(tmp_path / "large", tmp_path / "out"))
    assert "large.bin" in error and "1024" in error


def test_an_output_that_cannot_be_written_is_refused(ranks, corpus, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert "file" in refused(ranks, argv(corpus, tmp_path / "file" / "out"))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_gpu_that_is_not_there_is_refused(ranks, corpus, tmp_path):
    assert "no GPU" in refused(ranks, argv(corpus, tmp_path / "out", device="gpu"))


def test_flash_attention_required_on_a_cpu_is_refused(ranks, corpus, tmp_path):
    error = refused(ranks, argv(corpus, tmp_path / "out", use_flash_attention="required"))
    assert "--use_flash_attention found required, not possible here: no GPU" in error


def test_a_configuration_without_weights_cannot_be_continued(ranks, corpus, tmp_path):
    error = refused(ranks, argv(corpus, tmp_path / "out", continue_training=1))
    assert "'llama-rehearsal' is a configuration without weights" in error and "--continue_training 0" in error


def test_a_tokenizer_that_is_nowhere_is_named(ranks, corpus, tmp_path):
    error = refused(ranks, argv(corpus, tmp_path / "out", tokenizer_name_or_path=tmp_path))
    assert "--tokenizer_name_or_path" in error and "cannot be loaded" in error


def test_impossible_values_are_refused_with_what_is_possible(ranks, corpus, tmp_path):
    error = refused(ranks, argv(corpus, tmp_path / "out", max_steps="ten", recompute_granularity="half"))
    assert "--max_steps found 'ten' fix: allowed: a whole number" in error
    assert "--recompute_granularity found 'half' fix: allowed: full, full_attn, core_attn" in error
