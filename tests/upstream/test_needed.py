"""Each correction has a test that fails without it, and upstream still needs all of them.

The corrections of model families and of training are held by tests of other rooms. Each runs here with its correction
switched off.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ranks import WITHOUT
from tests.store import ROOT

MEANS = {"__init__", "module_view", "token_loss", "auxiliary_loss"}  # of corrections, none themselves
FAMILIES = "families/test_families.py::"
SAME_NUMBERS = f"{FAMILIES}test_loss_and_gradient_are_those_of_the_plain_model"
CONTINUATION = f"{FAMILIES}test_greedy_continuation_under_tensor_parallel_is_that_of_one_process"
BOTH = "families/test_family_adapters.py::test_two_processes_load_it_give_the_numbers_of_one_and_save_the_same"
PRETRAINING = "families/test_pretraining.py::"
ONE_PROCESS = f"{PRETRAINING}test_one_process_trains_from_the_closed_form_and_keeps_its_positions"
TWO_PROCESSES = f"{PRETRAINING}test_two_processes_give_the_numbers_of_one"
TRAINING = "training/test_half_gradients.py::"
ELSEWHERE = {  # file of launch/upstream: the test, below tests/, that fails without it
    "bloom_zero_weights": f"{FAMILIES}test_full_training_halves_the_loss_on_fixed_samples[bloom]",
    "chatglm_loss": f"{SAME_NUMBERS}[tensor_parallel-others]",
    "chatglm_v2_flash_layout": f"{SAME_NUMBERS}[flash_attention-some]",
    "chatglm_v2_ignores_prefix": f"{BOTH}[prefix-some]",
    "chatglm_v2_pipe_positions": f"{TWO_PROCESSES}[pipeline_parallel-chatglm_v2]",
    "chatglm_v2_pipeline_names": f"{TWO_PROCESSES}[pipeline_parallel-chatglm_v2]",
    "chatglm_v2_sequence_length": f"{ONE_PROCESS}[chatglm_v2]",
    "chatglm_v2_split": f"{SAME_NUMBERS}[tensor_parallel-some]",
    "generation_mask": f"{CONTINUATION}[others]",
    "generation_of_sharded_logits": f"{CONTINUATION}[some]",
    "glm_head": "training/test_chunked_loss.py::test_every_family_gets_the_same[answers]",
    "glm_loss": f"{SAME_NUMBERS}[tensor_parallel-some]",
    "glm_split": f"{SAME_NUMBERS}[tensor_parallel-some]",
    "half_precision_norm": (
        f"{TRAINING}test_norm_of_small_gradients_is_that_of_float32_and_they_are_clipped_to_it[stage3-2]"
    ),
    "llama_fused_rms_norm_flag": "custom_ops/test_op.py::test_llama_asks_for_it_as_upstreams_does_not",
    "lora_of_fused_weights": f"{BOTH}[lora-some]",
    "master_gradients_stay_scaled": (
        f"{TRAINING}test_gradients_that_are_summed_in_float32_are_unscaled_and_clipped[single]"
    ),
    "opt_has_every_attribute": f"{ONE_PROCESS}[opt]",
    "opt_untied_head": f"{FAMILIES}test_parameters_and_first_loss_are_those_of_the_model[others]",
}
# Of a test whose fixture computes the numbers and ends by an exception: what it says.
EXCEPTIONS = {
    "generation_mask": "The 'shape' in ReshapeOp is invalid",
    "glm_loss": "only one element variable can be converted to float",
    "llama_fused_rms_norm_flag": "no attribute 'use_fast_layer_norm'",
}


def test_every_correction_has_its_test():
    corrections = {file.stem for file in (ROOT / "launch" / "upstream").glob("*.py")} - MEANS
    here = {name for file in Path(__file__).parent.glob("test_*.py") for name in functions(file)}
    assert corrections - here == ELSEWHERE.keys()
    for test in ELSEWHERE.values():
        file, _, function = re.sub(r"\[.*", "", f"{test}").partition("::")
        assert function.removeprefix("test_") in functions(ROOT / "tests" / file), test


def functions(file: Path) -> list[str]:
    return re.findall(r"^def test_(\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ELSEWHERE)
def test_fails_without(name):
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", f"tests/{ELSEWHERE[name]}"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {WITHOUT: name}, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout[-3000:]  # other codes are mistakes in the table
    assert EXCEPTIONS.get(name, "1 failed") in done.stdout
