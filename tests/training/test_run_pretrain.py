"""run_pretrain.py as a user meets it: what it writes, and what it says to mistakes."""

import json
import math
import re
import shutil

import numpy as np
import pytest

from launch.reporting.records import TRAIN_LOG, read_train_log
from tests.distributed.cells import LORA, PRETRAINING
from tests.distributed.layouts import STAGE3
from tests.runs import EVALUATED_SAMPLES, SEQUENCE_LENGTH, VOCABULARY
from tests.training.run_ranks import make_corpus

FROM_NOTHING = {"model_name_or_path": "llama-rehearsal", "continue_training": 0}


@pytest.fixture(scope="module")
def finished(runs):
    """A run of five steps from random weights."""
    flags = FROM_NOTHING | {"per_device_train_batch_size": 4, "max_steps": 5, "save_steps": 99, "logging_steps": 2}
    return runs(PRETRAINING, **flags, report_to="visualdl")


def test_the_log_and_the_terminal(finished):
    records = [record for record in read_train_log(finished.output) if "loss" in record]
    first, last = records[0], records[-1]
    assert [record["global_step"] for record in records] == [1, 2, 4, 5]  # the first, the logged and the last
    assert (last["progress"], last["consumed_samples"], last["eta_seconds"]) == (1.0, 20, 0)
    assert last["consumed_tokens"] == 20 * SEQUENCE_LENGTH
    assert first["loss"] == float(np.float32(first["loss"]))  # step 1 alone: exactly what float32 held
    assert round(first["loss"], 6) != first["loss"]
    [line] = [line for line in finished.stdout.splitlines() if line.startswith("step 5/5")]
    assert f"loss {last['loss']:.4f}" in line and f"MFU {last['mfu']:.1%}" in line and "ETA 0s" in line
    # 23 samples to train on are 5.75 steps of 4
    assert "steps: 5 of 128 tokens (4 samples of 32), 5.8 steps an epoch, 0.87 epochs" in finished.stdout
    told = r"memory: \S+ MiB planned, \S+ MiB at the first step's peak \(the plan is of Paddle's"
    assert re.search(told, finished.stdout)


def test_the_summary_says_how_it_began_and_ended(finished):
    records = [record for record in read_train_log(finished.output) if "loss" in record]
    summary = finished.summary
    assert (summary["first_loss"], summary["last_loss"]) == (records[0]["loss"], records[-1]["loss"])
    assert summary["global_step"] == 5
    assert summary["evaluation"]["eval_tokens"] == EVALUATED_SAMPLES * SEQUENCE_LENGTH
    assert summary["versions"]["paddlepaddle"] and summary["topology"]["processes"] == 1
    text = json.dumps(summary)
    assert text.count('"first_loss') == text.count('"last_loss') == 1


def test_visualdl_holds_the_same_losses(finished):
    from visualdl import LogReader

    [log] = finished.output.rglob("vdlrecords.*.log")
    scalars = LogReader(file_path=str(log)).get_data("scalar", "train/loss")
    records = [record for record in read_train_log(finished.output) if "loss" in record]
    assert [scalar.id for scalar in scalars] == [1, 2, 4, 5]
    for scalar, record in zip(scalars, records, strict=True):
        assert scalar.value == pytest.approx(record["loss"], rel=1e-6)


@pytest.mark.parametrize(
    "place", [{}, pytest.param({"layout": STAGE3, "sharding": ["stage3 offload"]}, marks=pytest.mark.long)]
)
def test_an_adapter_is_read_back_and_tried_before_the_run_ends(runs, place):
    told = runs(PRETRAINING, **LORA, **place).stdout
    found = re.search(r"adapter read back from \S+: (\d+) tensors as trained, (\d+) of them not as at the", told)
    assert found[1] == found[2] == "28"
    assert "largest difference of the logits of 2 training samples 0\n" in told


@pytest.mark.long
def test_what_is_told_of_the_data(runs, finished, tmp_path):
    """And an earlier run is kept."""
    other, corpus, earlier = tmp_path / "other", runs.material / "corpus", tmp_path / "earlier"
    make_corpus(str(other), vocab_size=VOCABULARY, largest_id=VOCABULARY - 1)
    shutil.copytree(finished.output, earlier)
    log = (earlier / TRAIN_LOG).read_bytes()
    jobs = {
        "one token": {"max_seq_length": 1, "max_steps": 2, "do_eval": 0},
        "repeated": {},
        "blend": {"input_dir": [f"0.75 {corpus} 0.25 {other}"], "max_steps": 1},
        "kept": {"max_steps": 1, "overwrite_output_dir": 1},
    }
    outputs = {name: {"output_dir": earlier if name == "kept" else tmp_path / name.replace(" ", "-")} for name in jobs}
    said = runs.said(PRETRAINING, {name: flags | FROM_NOTHING | outputs[name] for name, flags in jobs.items()})
    assert not any(one["exit_code"] for one in said.values()), said
    records = [record for record in read_train_log(tmp_path / "one-token") if "loss" in record]
    assert [record["consumed_tokens"] for record in records] == [8, 16]
    assert all(abs(record["loss"] - math.log(1024)) < 0.5 for record in records)
    assert f"warning: --max_steps 6 reads each sample {48 / 23:.1f} times" in said["repeated"]["stdout"]
    assert "blend: an epoch uses 23 of 23, " in said["blend"]["stdout"]
    assert (earlier / "train_log.1.jsonl").read_bytes() == log
    assert read_train_log(earlier)[0]["global_step"] == 1


def test_mistakes_stop_before_training(runs, finished, tmp_path):
    corpus, out = runs.material / "corpus", tmp_path / "out"
    make_corpus(str(tmp_path / "large"), vocab_size=2000, largest_id=1024)
    make_corpus(str(tmp_path / "other"), vocab_size=100_000, largest_id=7)
    size = corpus.with_suffix(".bin").stat().st_size
    for name, source, end in (("short", corpus, -2), ("mixed", tmp_path / "other", size)):
        (tmp_path / f"{name}.bin").write_bytes(corpus.with_suffix(".bin").read_bytes()[:end])
        (tmp_path / f"{name}.idx").write_bytes(source.with_suffix(".idx").read_bytes())
    (tmp_path / "file").write_text("mine")
    log = (finished.output / TRAIN_LOG).read_bytes()
    mistakes = [
        ({"max_stepz": 3}, ["--max_stepz unknown flag", "did you mean --max_steps?"]),
        ({"input_dir": tmp_path / "nowhere"}, ["no data at", "python -m data_tools.tokenize"]),
        ({"input_dir": tmp_path / "short"}, ["short.bin", f"{size}", f"{size - 2}"]),
        ({"input_dir": tmp_path / "mixed"}, ["mixed.bin"]),
        ({"input_dir": tmp_path / "large"}, ["large.bin", "1024"]),
        ({"output_dir": tmp_path / "file" / "out"}, ["file"]),
        ({"output_dir": finished.output}, ["--overwrite_output_dir 1"]),
        ({"device": "gpu"}, ["no GPU"]),
        ({"use_flash_attention": "required"}, ["--use_flash_attention found required, not possible here: no GPU"]),
        ({"continue_training": 1}, ["'llama-rehearsal' is a configuration without weights", "--continue_training 0"]),
        ({"tokenizer_name_or_path": tmp_path}, ["--tokenizer_name_or_path", "cannot be loaded"]),
        (
            {"max_steps": "ten", "recompute_granularity": "half"},
            [
                "--max_steps found 'ten' fix: allowed: a whole number",
                "--recompute_granularity found 'half' fix: allowed: full, full_attn, core_attn",
            ],
        ),
    ]
    outputs = ({"output_dir": out / str(number)} for number in range(len(mistakes)))
    jobs = {str(flags): FROM_NOTHING | next(outputs) | flags for flags, _ in mistakes}
    said = runs.said(PRETRAINING, jobs)
    for flags, told in mistakes:
        found = said[str(flags)]
        assert found["exit_code"] == 2 and "Traceback" not in found["stderr"], flags
        assert all(words in found["stderr"] for words in told), (flags, found["stderr"])
    assert not list(out.rglob(TRAIN_LOG)) and (tmp_path / "file").read_text() == "mine"
    assert (finished.output / TRAIN_LOG).read_bytes() == log
