"""Flags of the pinned PaddleNLP that do not do what they say, beside those of the rules (tests/preflight/variants.py):
each is refused here, corrected or announced."""

import ast
import shlex
from pathlib import Path

import pytest

from launch.config.flag_values import load_schema, parse_flags
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.preflight.rules import check_compatibility

LAUNCH = Path(__file__).resolve().parents[2] / "launch"


@pytest.fixture(scope="module")
def upstream(ranks, tmp_path_factory):
    """What the pinned PaddleNLP makes of flags."""
    return ranks(1, "tests.preflight.fact_ranks:facts", str(tmp_path_factory.mktemp("facts")))[0]


def test_one_process_drops_every_parallel_flag_and_all_options_other_options(upstream):
    assert upstream["layout of stage3, tensor 4, pipeline 2 on one process"] == [[], -1, -1]
    options = upstream["enable_all_options remove_master_weight"]
    assert options == ["skip_save_model_weight", "master_weight_compatible"]


def test_files_of_arguments_drop_and_add_flags(upstream):
    assert upstream["max_steps and seed beside an args file"] == [-1, 42]
    for file in ("arguments.yaml", "arguments.json"):
        with pytest.raises(UserError, match=f"'{file}' is not a flag"):
            parse_flags([file])
    dropping = {"parse_dict", "parse_yaml_file", "parse_json_file", "get_last_checkpoint"}
    for path in LAUNCH.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        assert not {getattr(node, "attr", getattr(node, "id", "")) for node in nodes} & dropping, path


PIPELINE = (
    "--pipeline_parallel_degree 2 --gradient_accumulation_steps 2 --pipeline_parallel_config disable_p2p_cache_shape"
)
OVERLAP = "--sharding stage1 --sharding_parallel_config enable_stage1_overlap --save_strategy no"


@pytest.mark.parametrize(
    ("processes", "flags", "findings"),
    [
        (2, f"--prefix_tuning 1 {PIPELINE}", [(False, "prefix_tuning")]),
        (2, f"--eval_with_do_generation 1 {PIPELINE}", [(False, "eval_with_do_generation")]),
        (
            2,
            "--eval_with_do_generation 1 --tensor_parallel_degree 2 --sequence_parallel 1",
            [(False, "eval_with_do_generation")],
        ),
        (2, f"--lora 1 {OVERLAP}", [(False, "sharding_parallel_config")]),
        (2, "--lora 1 --prefix_tuning 1", [(False, "lora")]),
        (2, "--lora 1 --pad_to_multiple_of 7", [(False, "pad_to_multiple_of")]),
        (2, f"--lora 1 --fp32_norms_and_head 1 {PIPELINE}", [(False, "fp32_norms_and_head")]),
        (2, "--weight_quantize_algo nf4 --do_train 1", [(False, "weight_quantize_algo")]),
        (1, "--lora 1 --weight_quantize_algo llm.int8 --pad_to_multiple_of 8", []),
        (2, f"--lora 1 {PIPELINE}", []),
        (1, "--prefix_tuning 1", []),
        (2, f"{PIPELINE} --do_eval 1", [(True, "per_device_eval_batch_size")]),
        (2, f"{PIPELINE} --do_eval 1 --per_device_train_batch_size 1 --per_device_eval_batch_size 2", []),
    ],
)
def test_what_fine_tuning_refuses_and_announces(processes, flags, findings):
    run = RunConfig("finetune_generation", parse_flags(shlex.split(flags)), processes=processes)
    told = [(one.ok, one.subject[2:]) for one in check_compatibility(run) if one.subject.startswith("--")]
    assert told == findings
    assert {"lora_alpha", "lora_dropout", "lora_target_modules"} <= load_schema("finetune_generation").keys()
