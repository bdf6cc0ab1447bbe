"""Is each correction of Paddle or paddlenlp still needed? Its test must fail where it does nothing.

    python -m tests.upstream.without                        # all, four minutes on two cores
    python -m tests.upstream.without glm_loss glm_split

The tests run in a copy of the repository; this one is left alone.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("launch", "data_tools", "custom_ops", "benchmarks", "tests", "recipes", "docs", "README.md", "pyproject.toml")
NOTHING = '\n\ndef correct() -> None:\n    """Switched off."""\n'
FAILED = 1  # pytest's exit code; others are mistakes in the table below

FAMILIES = "models/test_families.py::"
SAME_NUMBERS = f"{FAMILIES}test_loss_and_gradient_are_those_of_the_plain_model"
CONTINUATION = f"{FAMILIES}test_greedy_continuation_under_tensor_parallel_is_that_of_one_process"
ADAPTERS = "models/test_family_adapters.py::"
PRETRAINING = "models/test_pretraining.py::"
TWO_PROCESSES = f"{PRETRAINING}test_two_processes_give_the_numbers_of_one"
TESTS = {  # file of launch/upstream: the test, below tests/, that fails without it
    "bloom_zero_weights": f"{FAMILIES}test_full_training_halves_the_loss_on_fixed_samples[bloom]",
    "chat_templates_compiled": (
        "upstream/test_chat_templates_compiled.py::test_are_loaded_and_remember_where_they_are_from[list]"
    ),
    "chatglm_loss": f"{SAME_NUMBERS}[tensor_parallel-chatglm]",
    "chatglm_v2_flash_layout": f"{SAME_NUMBERS}[flash_attention-chatglm_v2]",
    "chatglm_v2_ignores_prefix": f"{ADAPTERS}test_tensor_parallel_gives_the_numbers_of_one_process[prefix]",
    "chatglm_v2_pipe_positions": f"{TWO_PROCESSES}[pipeline_parallel-chatglm_v2]",
    "chatglm_v2_pipeline_names": f"{TWO_PROCESSES}[pipeline_parallel-chatglm_v2]",
    "chatglm_v2_sequence_length": (
        f"{PRETRAINING}test_a_model_keeps_its_positions_when_it_trains_on_shorter_samples[chatglm_v2]"
    ),
    "chatglm_v2_split": f"{SAME_NUMBERS}[tensor_parallel-chatglm_v2]",
    "generation_mask": f"{CONTINUATION}[qwen2]",
    "generation_of_divided_logits": f"{CONTINUATION}[llama]",
    "glm_loss": f"{SAME_NUMBERS}[tensor_parallel-glm]",
    "glm_split": f"{SAME_NUMBERS}[tensor_parallel-glm]",
    "glm_tokenizers_unknown": "upstream/test_glm_tokenizers_unknown.py::test_finds_that_of_glm_515m",
    "half_precision_norm": (
        "training/test_half_gradients.py::"
        "test_norm_of_small_gradients_is_that_of_float32_and_they_are_clipped_to_it[stage3-2]"
    ),
    "llama_flash_masks": "upstream/test_llama_flash_masks.py::test_is_that_of_exact_attention[llama-A100]",
    "llama_fused_rms_norm_flag": "custom_ops/test_op.py::test_llama_asks_for_it",
    "logits_processor_list": "upstream/test_logits_processor_list.py::test_uses_it_after_its_own",
    "lora_of_fused_weights": f"{ADAPTERS}test_tensor_parallel_gives_the_numbers_of_one_process[lora]",
    "master_gradients_stay_scaled": (
        "training/test_half_gradients.py::test_gradients_that_are_summed_in_float32_are_unscaled_and_clipped[single]"
    ),
    "opt_bfloat16_mask": "upstream/test_opt_bfloat16_mask.py::test_padding_is_masked_in_every_dtype[bfloat16]",
    "opt_has_every_attribute": (
        f"{PRETRAINING}test_parameters_are_reported_and_the_loss_falls_from_its_closed_form[opt]"
    ),
    "opt_untied_head": f"{FAMILIES}test_parameters_are_those_of_the_model[opt]",
    "pipeline_gradient_shapes": (
        "upstream/test_pipeline_gradient_shapes.py::"
        "test_a_stage_expects_the_gradient_of_the_oldest_micro_batch[corrected]"
    ),
    "shared_weight_counted_twice": "upstream/test_shared_weight_counted_twice.py::test_is_that_of_one_process",
    "stage1_frozen_parameters": "upstream/test_stage1_frozen_parameters.py::test_have_no_gradient",
    "stage3_frozen_parameters": (
        "upstream/test_stage3_frozen_parameters.py::test_are_slices_after_each_backward_pass[2-0]"
    ),
    "stage3_weight_decay": "upstream/test_stage3_weight_decay.py::test_sliced_weight_decays[corrected]",
    "store_aborts_at_exit": (
        "upstream/test_store_aborts_at_exit.py::test_ends_when_another_rank_leaves_after_its_destructors[corrected]"
    ),
}


@contextmanager
def copy_of_repository() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        for name in COPIED:
            source, target = ROOT / name, Path(directory, name)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "build"))
            else:
                shutil.copy(source, target)
        yield Path(directory)


def run_without(name: str, repository: Path) -> subprocess.CompletedProcess:
    """Run a correction's test in a copy of the repository, the correction switched off there meanwhile."""
    file = repository / "launch" / "upstream" / f"{name}.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text + NOTHING, encoding="utf-8")
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"tests/{TESTS[name]}"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    file.write_text(text, encoding="utf-8")
    return done


def main(argv: list[str]) -> int:
    needed = True
    with copy_of_repository() as repository:
        for name in argv or TESTS:
            done = run_without(name, repository)
            fails = done.returncode == FAILED
            print(f"{name:30} {'fails without it' if fails else f'pytest ended with {done.returncode}'}", flush=True)
            needed &= fails
    return 0 if needed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
