"""Flags of the pinned PaddleNLP that do not do what they say: each is refused here, corrected or announced.

One test a fact, named after it.
"""

import ast
import shlex
from pathlib import Path

import pytest

from launch.config import flag_values
from launch.config.aliases import refusal
from launch.config.flag_values import load_schema, parse_flags
from launch.config.run_config import RunConfig
from launch.devices import fused_ln
from launch.devices.flash_attention import Case, obstacle
from launch.devices.switches import flash_attention, fused_rms_norm
from launch.errors import UserError
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.preflight import run_on_flags
from launch.preflight.rules import check_compatibility
from launch.reporting.throughput import Throughput

ROOT = Path(__file__).resolve().parents[2]
RANKS = "tests.preflight.fact_ranks:"


def findings(flags: str, processes: int = 1, script: str = "run_pretrain") -> list[tuple[bool, str, str]]:
    """(ok, subject, found) of what the compatibility matrix tells about flags."""
    told = check_compatibility(RunConfig(script, parse_flags(shlex.split(flags)), processes=processes))
    return [(one.ok, one.subject, one.found) for one in told if one.subject.startswith("--")]


def told(flags: str, processes: int = 1, script: str = "run_pretrain") -> tuple[bool, str, str]:
    """The only finding."""
    [finding] = findings(flags, processes, script)
    return finding


@pytest.fixture
def with_flags_to_come(monkeypatch):
    """finetune_generation with flags that it may not have yet."""
    extra = {
        "prefix_tuning": {"type": "bool", "default": False},
        "weight_quantize_algo": {"type": "str", "default": None},
        "eval_with_do_generation": {"type": "bool", "default": False},
    }
    monkeypatch.setattr(flag_values, "load_schema", lambda script: extra | load_schema(script))


@pytest.fixture(scope="module")
def upstream(ranks, tmp_path_factory):
    """What the pinned PaddleNLP makes of flags."""
    return ranks(1, f"{RANKS}facts", str(tmp_path_factory.mktemp("facts")))[0]


def test_upstreams_offload_is_not_used():
    """It warns that offload is not supported and passes it on all the same; launch/offload does it instead."""
    for stage in ("stage2", "stage3"):
        assert findings(f"--sharding '{stage} offload'", 2) == []
    assert told("--sharding 'stage1 offload'", 2)[:2] == (False, "--sharding")


def test_stage3_with_tensor_and_stage2_with_pipeline_parallel():
    refused = [
        told("--sharding stage2 --pipeline_parallel_degree 2 --gradient_accumulation_steps 8", 8),
        told("--sharding stage3 --pipeline_parallel_degree 2 --gradient_accumulation_steps 8", 8),
        told("--sharding stage3 --tensor_parallel_degree 2", 8),
    ]
    assert [one[:2] for one in refused] == [(False, "--sharding")] * 3


def test_one_process_drops_every_parallel_flag(upstream):
    assert upstream["layout of stage3, tensor 4, pipeline 2 on one process"] == [[], -1, -1]
    assert told("--sharding stage3")[:2] == (True, "--sharding")
    for flag in ("tensor_parallel_degree", "pipeline_parallel_degree"):
        assert findings(f"--{flag} 2")[0][:2] == (False, f"--{flag}")


def test_a_sharding_degree_of_one_switches_sharding_off():
    asked = "--sharding stage1 --tensor_parallel_degree 4 --pipeline_parallel_degree 2 --gradient_accumulation_steps 2"
    ok, subject, found = told(asked, 8)
    assert (ok, subject) == (True, "--sharding")
    assert found.startswith("stage1 does nothing on 8 processes: tensor parallel 4 x pipeline parallel 2")


def test_prefix_with_pipeline_and_overlap_with_lora(with_flags_to_come):
    tune = "finetune_generation"
    pipeline = "--pipeline_parallel_degree 2 --gradient_accumulation_steps 2"
    overlap = "--sharding stage1 --sharding_parallel_config enable_stage1_overlap --save_strategy no"
    for asked, flag in [
        (f"--prefix_tuning 1 {pipeline}", "prefix_tuning"),
        (f"--eval_with_do_generation 1 {pipeline}", "eval_with_do_generation"),
        (f"--lora 1 {overlap}", "sharding_parallel_config"),
        ("--lora 1 --prefix_tuning 1", "lora"),
        ("--lora 1 --pad_to_multiple_of 7", "pad_to_multiple_of"),
        (f"--lora 1 --fp32_norms_and_head 1 {pipeline}", "fp32_norms_and_head"),
        ("--weight_quantize_algo nf4 --do_train 1", "weight_quantize_algo"),
    ]:
        assert told(asked, 2, tune)[:2] == (False, f"--{flag}"), asked
    assert findings("--lora 1 --weight_quantize_algo llm.int8 --pad_to_multiple_of 8", 1, tune) == []
    assert findings(f"--lora 1 {pipeline}", 2, tune) == findings("--prefix_tuning 1", 1, tune) == []


def test_upstreams_own_saving_is_not_used():
    """Unified checkpoints are switched off under stage 3, whose save gathers all parameters on every rank."""
    tree = ast.parse((ROOT / "launch" / "training" / "trainer.py").read_text())
    methods = {node.name: ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for name in ("_save_checkpoint", "save_model", "_load_optimizer_and_scheduler"):
        assert "super()" not in methods[name]


def test_upstreams_own_resume_is_not_used():
    """It takes the highest checkpoint, half-written or not, and works out the data position from the current batch."""
    sources = [path.read_text() for path in ROOT.joinpath("launch").rglob("*.py")]
    assert not any("get_last_checkpoint(" in source for source in sources)
    ok, subject, found = told("--ignore_load_lr_and_optim 1 --resume_from_checkpoint ckpt")
    assert ok and "step, schedule and data begin anew" in found


def test_all_options_drop_other_options(upstream):
    options = upstream["enable_all_options remove_master_weight"]
    assert options == ["skip_save_model_weight", "master_weight_compatible"]
    for dropped in ("remove_master_weight", "async_save", "ignore_merge_optimizer"):
        asked = f"--unified_checkpoint 1 --unified_checkpoint_config 'enable_all_options {dropped}'"
        ok, subject, found = told(asked)
        assert (ok, subject) == (False, "--unified_checkpoint_config") and "drops every other word" in found
    ok, _, found = told("--unified_checkpoint 1 --unified_checkpoint_config enable_all_options")
    assert ok and "checkpoints are this program's own" in found
    assert findings("--unified_checkpoint 1 --unified_checkpoint_config async_save") == []


def test_overlap_guards_that_always_pass():
    for word in ("enable_stage1_broadcast_overlap", "enable_stage1_allgather_overlap"):
        ok, subject, found = told(f"--sharding stage1 --sharding_parallel_config {word}", 2)
        assert (ok, subject) == (False, "--sharding_parallel_config") and "USE_CASUAL_MASK" in found
    pipeline = "--pipeline_parallel_degree 2 --gradient_accumulation_steps 2 --pipeline_parallel_config"
    assert told(f"{pipeline} enable_dp_comm_overlap", 2)[:2] == (False, "--pipeline_parallel_config")


def test_lora_alpha_is_fixed_and_the_evaluation_batch_forced():
    assert {"lora_alpha", "lora_dropout", "lora_target_modules"} <= load_schema("finetune_generation").keys()
    pipeline = "--pipeline_parallel_degree 2 --gradient_accumulation_steps 16 --per_device_train_batch_size 1"
    assert told(f"{pipeline} --do_eval 1", 2, "finetune_generation")[:2] == (True, "--per_device_eval_batch_size")
    assert findings(f"{pipeline} --do_eval 1 --per_device_eval_batch_size 16", 2, "finetune_generation") == []


def test_hardware_tflops_are_binary():
    """Ours are decimal: 6 N operations a token, a token a second, on a device that does as many, are all of it."""
    shape = ModelShape.from_config(load_config("llama-7b"))
    peak = 6 * shape.matmul_parameters
    measured = Throughput(shape=shape, sequence_length=1, peak_flops=peak).measure(tokens=1, steps=1, seconds=1.0)
    assert measured["mfu"] == 1.0 and not [key for key in measured if "hardware" in key]


def test_no_check_of_the_card_for_flash_attention():
    reason = obstacle(Case(compute_capability=(6, 1), dtype="float16", head_size=128, build="12.6"))
    assert "6.1" in reason and not flash_attention("auto", reason).enabled
    with pytest.raises(UserError):
        flash_attention("required", reason)


def test_merging_ranks_and_stages_looks_for_other_names():
    for name in ("tp", "pp"):
        assert "the model that a run leaves is whole" in refusal(name)


def test_files_of_arguments_drop_and_add_flags(upstream):
    assert upstream["max_steps and seed beside an args file"] == [-1, 42]
    for file in ("arguments.yaml", "arguments.json"):
        with pytest.raises(UserError, match=f"'{file}' is not a flag"):
            parse_flags([file])
    dropping = {"parse_dict", "parse_yaml_file", "parse_json_file"}
    for path in ROOT.joinpath("launch").rglob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not names & dropping, path


def test_constructing_arguments_starts_process_groups():
    """All checks are made before: tests/test_entry.py holds that Paddle is not even imported then."""
    faults = [one for one in run_on_flags(RunConfig("run_pretrain", {"max_stepz": ["1"]})) if not one.ok]
    assert [one.subject for one in faults] == ["--max_stepz"]


def test_fused_rms_norm_takes_whatever_module_there_is():
    """One that was built for another Paddle is not used; that it loads and is right is tried at start."""
    stale = fused_ln.obstacle(fused_ln.Build(Path("fused_ln"), paddle="3.2.0", sources="-"), "llama", (8, 0))
    assert "the module fused_ln was built for Paddle 3.2.0, here is " in stale
    assert not fused_rms_norm("auto", stale).enabled
    with pytest.raises(UserError, match="--use_fused_rms_norm required: not possible here"):
        fused_rms_norm("required", stale)
