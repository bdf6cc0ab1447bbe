"""Planned against measured, from the records of runs that were never made."""

import json

import pytest

from launch.config.flag_values import parse_flags
from launch.config.layout import Layout
from launch.plan.hardware import CARDS
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.time_plan import plan_time
from tests.card.measured import first_loss_of, flags_of, run_report, stage_of_rank

CARD = CARDS["A100-80G"]
SCRIPT = "launch/run_pretrain.py"
ARGUMENTS = {
    "ModelArguments": {"model_name_or_path": "llama-7b", "continue_training": False, "use_flash_attention": "auto"},
    "DataArguments": {"max_seq_length": 2048, "input_dir": "['data']"},
    "RunArguments": {
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 8,
        "bf16": True,
        "fp16_opt_level": "O2",
        "tensor_parallel_degree": 2,
        "pipeline_parallel_degree": 2,
        "do_eval": False,
        "loss_first": "auto",
    },
}
FLAGS = (
    "--model_name_or_path llama-7b --use_flash_attention auto --max_seq_length 2048 --per_device_train_batch_size 1 "
    "--gradient_accumulation_steps 8 --bf16 1 --fp16_opt_level O2 --tensor_parallel_degree 2 "
    "--pipeline_parallel_degree 2"
)


def write_run(directory, losses=(11.1, 11.0), step_seconds=(9.0, 2.0), peaks=(1, 1, 1, 1)):
    directory.mkdir(parents=True)
    summary = {
        "command": ["python"],
        "arguments": ARGUMENTS,
        "topology": {"processes": len(peaks)},
        "global_step": len(losses),
        "peak_memory_bytes_by_rank": list(peaks),
    }
    (directory / "run_summary.json").write_text(json.dumps(summary))
    records = [
        {"global_step": step, "loss": loss, "step_seconds": time, "tokens_per_second": 16384 / time, "mfu": 0.5}
        for step, (loss, time) in enumerate(zip(losses, step_seconds, strict=True), start=1)
    ]
    (directory / "train_log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return directory


@pytest.fixture
def job():
    return Job.from_flags(SCRIPT, parse_flags(FLAGS.split()), 4, CARD)


def test_each_ranks_memory_stands_beside_that_of_its_stage(tmp_path, job):
    plan = plan_memory(job, CARD)
    planned = [max(phase.allocated_bytes for phase in stage.phases) for stage in plan.stages]
    assert planned[0] != planned[1]
    peaks = (planned[0], planned[0], planned[1], 2 * planned[1])
    rows = run_report(write_run(tmp_path / "run", peaks=peaks), SCRIPT, CARD)["memory"]
    assert [row["planned_bytes"] for row in rows] == [planned[0], planned[0], planned[1], planned[1]]
    assert [row["error"] for row in rows] == [0.0, 0.0, 0.0, -0.5]


@pytest.mark.parametrize(
    ("kept", "offload", "words"),
    [
        ("[<ShardingOption.SHARD_GRAD_OP: 'stage2'>]", False, "stage2"),
        ("[<ShardingOption.FULL_SHARD: 'stage3'>]", True, "stage3 offload"),
        ("[]", False, None),
    ],
)
def test_sharding_is_read_from_what_the_trainer_makes_of_it(kept, offload, words):
    arguments = {"sharding": kept, "host_offload": offload, "model_name_or_path": "llama-7b"}
    flags = flags_of({"arguments": {"RunArguments": arguments}}, SCRIPT)
    assert flags.get("sharding") == ([words] if words else None)
    assert Job.from_flags(SCRIPT, flags, 2, CARD).layout.sharding == (words or "").partition(" ")[0]


def test_the_first_steps_do_not_count_for_speed(tmp_path, job):
    seconds = [9.0] * 3 + [2.0, 4.0, 3.0]
    run = write_run(tmp_path / "run", losses=[11.0] * 6, step_seconds=seconds)
    speed = run_report(run, SCRIPT, CARD)["speed"]
    assert speed["measured_step_seconds"] == 3.0
    assert speed["planned_step_seconds"] == plan_time(job, CARD).step_seconds
    assert speed["error"] == pytest.approx(speed["planned_step_seconds"] / 3.0 - 1)


@pytest.mark.parametrize(("loss", "ok"), [(11.19, True), (10.0, False)])
def test_the_first_loss_of_random_weights_has_its_window(tmp_path, loss, ok):
    run = write_run(tmp_path / "run", losses=[loss, 1.0])
    first = run_report(run, SCRIPT, CARD)["first_loss"]
    assert first["ok"] is ok and first["measured"] == loss
    assert first["window"] == pytest.approx([11.19 * 0.95, 11.19 * 1.05], abs=0.01)


def test_the_first_loss_of_preferences_has_none(job):
    first = first_loss_of({"continue_training": ["False"]}, job.changed(loss_type="sigmoid"), 0.69)
    assert first == {"measured": 0.69, "window": None, "ok": None}


@pytest.mark.parametrize(
    ("layout", "stages"),
    [
        (Layout(1, 1, 2, 2, ""), [0, 0, 1, 1]),
        (Layout(1, 2, 1, 2, "stage1"), [0, 0, 1, 1]),
        (Layout(2, 1, 1, 2, ""), [0, 1, 0, 1]),
        (Layout(1, 2, 2, 2, "stage1"), [0, 0, 0, 0, 1, 1, 1, 1]),
        (Layout(4, 1, 1, 1, ""), [0, 0, 0, 0]),
    ],
)
def test_stage_of_a_rank(layout, stages):
    """paddlenlp/trainer/training_args.py: data, pipeline, sharding, tensor parallel, the last one innermost."""
    assert [stage_of_rank(layout, rank) for rank in range(layout.processes)] == stages
