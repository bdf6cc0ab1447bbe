"""Flags of the pinned PaddleNLP that do not do what they say, beside those of the rules (tests/preflight/variants.py):
each is refused here, corrected or announced."""

import shlex

import pytest

from launch.config.flag_values import load_schema, parse_flags
from launch.config.run_config import RunConfig
from launch.preflight.rules import check_compatibility

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
