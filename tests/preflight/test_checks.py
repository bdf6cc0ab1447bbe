"""Each check of the preflight: what is right passes, each fault is named with its fix."""

import os

import numpy as np
import pytest

from data_tools.formats.tokens.indexed import IndexedWriter
from launch import preflight
from launch.preflight.data.token_files import check_data
from launch.preflight.flags import check_flags
from launch.preflight.machine.output import check_output
from launch.preflight.model.directory import check_model
from launch.preflight.report import Finding
from launch.preflight.situation import Situation

SCRIPT = "launch/run_pretrain.py"


def told(findings: list[Finding]) -> tuple[bool, str, str]:
    """The only finding: whether ok, what was found, the fix."""
    (finding,) = findings
    return finding.ok, finding.found, finding.fix


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("max_steps", ["10"]),
        ("learning_rate", ["1e-5"]),
        ("fp16", ["1"]),
        ("bf16", []),
        ("do_train", []),
        ("no_continue_training", []),
        ("use_flash_attention", ["auto"]),
        ("recompute_granularity", ["full_attn"]),
        ("sharding", ["stage2"]),
        ("sharding", ["stage2 offload"]),
        ("input_dir", ["0.7", "a", "0.3", "b"]),
        ("pipeline_parallel_config", ["disable_p2p_cache_shape,enable_timer"]),
    ],
)
def test_flag_that_is_right(flag, words):
    assert told(check_flags(SCRIPT, {flag: words})) == (True, "1, all known", "")


@pytest.mark.parametrize(
    ("flag", "words", "found", "fix"),
    [
        ("max_step", ["10"], "unknown flag", "did you mean --max_steps?"),
        ("learnig_rate", ["1"], "unknown flag", "did you mean --learning_rate?"),
        ("qqqq", [], "unknown flag", "leave it out; --help lists all flags"),
        ("no_fp16", [], "unknown flag", "did you mean --fp16?"),
        ("max_steps", ["1e4"], "found '1e4'", "allowed: a whole number"),
        ("learning_rate", ["small"], "found 'small'", "allowed: a number"),
        ("fp16", ["maybe"], "found 'maybe'", "allowed: 1 or 0 (true, false)"),
        ("use_flash_attention", ["sometimes"], "found 'sometimes'", "allowed: auto, on, off, required"),
        ("recompute_granularity", ["half"], "found 'half'", "allowed: full, full_attn, core_attn"),
        ("max_steps", [], "found no value", "--max_steps VALUE (int)"),
        ("max_steps", ["10", "20"], "found 2 values: 10 20", "one value: --max_steps 10"),
        ("sharding", ["stage2", "offload"], "found 2 values: stage2 offload", 'one value: --sharding "stage2 offload"'),
        ("sharding", ["stage4"], "found 'stage4'", "allowed: stage1, stage2, stage3, offload"),
        (
            "lr_scheduler_type",
            ["cosinus"],
            "found 'cosinus'",
            "allowed: linear, cosine, constant, constant_with_warmup, polynomial",
        ),
        ("evaluation_strategy", ["step"], "found 'step'", "allowed: no, steps, epoch"),
        ("fp16_opt_level", ["2"], "found '2'", "allowed: O0, O1, O2"),
        ("device", ["cuda"], "found 'cuda'", "allowed: cpu, gpu"),
        ("report_to", ["mlflow"], "found 'mlflow'", "allowed: none, all, visualdl, autonlp, wandb, tensorboard"),
        (
            "optim",
            ["sgd"],
            "found 'sgd'",
            "allowed: adamw, adafactor, adamw_mini, adamw_custom, adamw_16bit_moment",
        ),
        (
            "unified_checkpoint_config",
            ["enable_all_options async_saving"],
            "found 'async_saving'",
            "allowed: skip_save_model_weight, master_weight_compatible, remove_master_weight, async_save, "
            "enable_all_options, ignore_merge_optimizer",
        ),
        (
            "tensor_parallel_config",
            ["enable_mp_async_allreduce sync_params"],
            "found 'sync_params'",
            "allowed: enable_mp_async_allreduce, enable_mp_skip_c_identity, enable_mp_fused_linear_param_grad_add, "
            "enable_sp_async_reduce_scatter, enable_delay_scale_loss, sync_param, sync_grad, sync_moment",
        ),
        (
            "pipeline_parallel_config",
            ["disable_p2p_cache_shape, enable_timer"],  # upstream cuts at the comma and keeps the space
            "found ' enable_timer'",
            "allowed: disable_p2p_cache_shape, disable_partial_send_recv, enable_delay_scale_loss, "
            "enable_dp_comm_overlap, enable_sharding_comm_overlap, enable_timer, enable_release_grads, "
            "enable_clear_every_step_cache, enable_overlap_p2p_comm, disable_batch_p2p_comm, "
            "best_unbalanced_scheduler, use_dualpipev",
        ),
        (
            "sharding_parallel_config",
            ["enable_stage3_overlap"],
            "found 'enable_stage3_overlap'",
            "allowed: enable_stage1_tensor_fusion, enable_stage1_overlap, enable_stage2_overlap, split_param, "
            "disable_stage1_reduce_avg, enable_stage1_broadcast_overlap, enable_stage1_allgather_overlap, "
            "enable_release_grads, enable_fuse_optimizer_states",
        ),
    ],
)
def test_flag_at_fault(flag, words, found, fix):
    (finding,) = check_flags(SCRIPT, {"seed": ["1"], flag: words})
    assert (finding.ok, finding.subject, finding.found, finding.fix) == (False, f"--{flag}", found, fix)


@pytest.fixture
def data(tmp_path):
    """A folder with two corpora of 30 and 12 tokens."""
    for name, tokens in [("a", 30), ("b", 12)]:
        with IndexedWriter(tmp_path / name, vocab_size=100) as writer:
            writer.add_document(np.arange(tokens))
    return tmp_path


def test_data_that_are_whole(data):
    assert told(check_data({"input_dir": [str(data)]})) == (True, "2 corpora, 42 tokens", "")
    assert (
        told(check_data({"input_dir": ["0.7", f"{data}/a", "0.3", f"{data}/b"]}))[1] == "2 corpora, 42 tokens"
    )


def test_missing_data(tmp_path):
    ok, found, _ = told(check_data({"input_dir": [str(tmp_path / "nowhere")]}))
    assert not ok and f"no data at {tmp_path}/nowhere" in found
    assert told(check_data({})) == (
        False,
        "no --input_dir",
        "--input_dir FOLDER or DATA=FOLDER, with pairs X.bin, X.idx",
    )


def test_truncated_bin(data):
    os.truncate(data / "a.bin", 30)
    ok, found, _ = told(check_data({"input_dir": [str(data)]}))
    assert not ok and "a.bin" in found and "30" in found


def test_every_damaged_corpus_is_told(data):
    (data / "a.idx").write_bytes((data / "b.idx").read_bytes())
    os.truncate(data / "b.bin", 2)
    findings = check_data({"input_dir": [str(data)]})
    assert ["a.bin" in findings[0].found, "b.bin" in findings[1].found] == [True, True]


def test_output_that_can_be_written_is_not_made(tmp_path):
    ok, found, _ = told(check_output({"output_dir": [str(tmp_path / "a" / "b")]}))
    assert ok and found.startswith(f"{tmp_path}/a/b, ") and found.endswith(" GB free")
    assert list(tmp_path.iterdir()) == []


def test_output_below_a_file(tmp_path):
    (tmp_path / "file").write_text("kept")
    ok, found, fix = told(check_output({"output_dir": [str(tmp_path / "file" / "run")]}))
    assert not ok and found == f"{tmp_path}/file/run cannot be written: {tmp_path}/file: Not a directory"
    assert fix == "OUTPUT=FOLDER or --output_dir names another"
    assert (tmp_path / "file").read_text() == "kept"


def test_output_on_a_file_system_that_cannot_be_written():
    assert told(check_output({"output_dir": ["/proc/run"]}))[0] is False


def test_all_checks_are_made(data):
    flags = {"input_dir": ["nowhere"], "max_step": ["3"], "output_dir": ["/proc/run"]}
    findings = preflight.run(Situation(SCRIPT, flags))
    assert [finding.subject for finding in findings if not finding.ok] == ["--max_step", "model", "data", "output"]


def test_a_model_that_is_nowhere_is_a_fault_with_the_names_there_are():
    [finding] = check_model({"model_name_or_path": ["facebook/lama-7b"]})
    assert not finding.ok and "'facebook/lama-7b'" in finding.found and "llama-7b" in finding.found
    assert check_model({"model_name_or_path": ["facebook/llama-7b"]})[0].ok
