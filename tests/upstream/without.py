"""Is each correction of Paddle or paddlenlp still needed? Its test must fail where it does nothing.

    python -m tests.upstream.without                        # all, two minutes
    python -m tests.upstream.without glm_loss glm_split

The tests run in a copy of the repository; this one is left alone. One process there runs all of them, so that they
share one import of Paddle: corrections are imported by ranks alone, which are forked anew for every test.
"""

import io
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from data_tools.children import close_in_children, end_process
from tests.ranks import RankServer

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("launch", "data_tools", "custom_ops", "benchmarks", "tests", "recipes", "docs", "README.md", "pyproject.toml")
NOTHING = '\n\ndef correct() -> None:\n    """Switched off."""\n'
FAILED = 1  # pytest's exit code; others are mistakes in the table below

FAMILIES = "families/test_families.py::"
SAME_NUMBERS = f"{FAMILIES}test_loss_and_gradient_are_those_of_the_plain_model"
CONTINUATION = f"{FAMILIES}test_greedy_continuation_under_tensor_parallel_is_that_of_one_process"
ADAPTERS = "families/test_family_adapters.py::"
PRETRAINING = "families/test_pretraining.py::"
TWO_PROCESSES = f"{PRETRAINING}test_two_processes_give_the_numbers_of_one"
TESTS = {  # file of launch/upstream: the test, below tests/, that fails without it
    "bloom_flash_alibi": (
        "upstream/test_flash_alibi.py::test_a_mask_is_made_where_one_is_given_once_for_all_heads[bloom]"
    ),
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
    "generation_of_sharded_logits": f"{CONTINUATION}[llama]",
    "glm_head": "training/test_chunked_loss.py::test_every_family_gets_the_same[answers]",
    "glm_loss": f"{SAME_NUMBERS}[tensor_parallel-glm]",
    "glm_split": f"{SAME_NUMBERS}[tensor_parallel-glm]",
    "glm_tokenizers_unknown": "upstream/test_glm_tokenizers_unknown.py::test_finds_that_of_glm_515m",
    "half_precision_norm": (
        "training/test_half_gradients.py::"
        "test_norm_of_small_gradients_is_that_of_float32_and_they_are_clipped_to_it[stage3-2]"
    ),
    "import_of_everything": "upstream/test_import_of_everything.py::test_leaves_out_what_training_does_not_use",
    "llama_flash_alibi": "upstream/test_flash_alibi.py::test_is_that_of_exact_attention[baichuan-V100]",
    "llama_flash_masks": "upstream/test_llama_flash_masks.py::test_is_that_of_exact_attention[llama-A100]",
    "llama_fused_rms_norm_flag": "custom_ops/test_op.py::test_llama_asks_for_it",
    "llama_mask_of_nothing": "upstream/test_llama_mask_of_nothing.py::test_make_none_where_none_is_given[llama]",
    "logits_processor_list": "upstream/test_logits_processor_list.py::test_uses_it_after_its_own",
    "lora_of_fused_weights": f"{ADAPTERS}test_tensor_parallel_gives_the_numbers_of_one_process[lora]",
    "master_gradients_stay_scaled": (
        "training/test_half_gradients.py::test_gradients_that_are_summed_in_float32_are_unscaled_and_clipped[single]"
    ),
    "mixtral_experts": "upstream/test_mixtral_experts.py::test_compute_what_the_formula_says",
    "opt_bfloat16_mask": "upstream/test_opt_bfloat16_mask.py::test_padding_is_masked_in_every_dtype[bfloat16]",
    "opt_has_every_attribute": (
        f"{PRETRAINING}test_parameters_are_reported_and_the_loss_falls_from_its_closed_form[opt]"
    ),
    "opt_untied_head": f"{FAMILIES}test_parameters_are_those_of_the_model[opt]",
    "pipeline_gradient_shapes": (
        "upstream/test_pipeline_gradient_shapes.py::"
        "test_a_stage_expects_the_gradient_of_the_oldest_micro_batch[corrected]"
    ),
    "qwen2_moe_experts": "upstream/test_qwen2_moe_experts.py::test_a_new_router_sends_tokens_to_all_experts",
    "qwen3_unknown": "upstream/test_qwen3_unknown.py::test_find_its_classes",
    "rotary_tables_of_every_layer": "upstream/test_rotary_tables_of_every_layer.py::test_a_model_keeps_them_once",
    "scaled_positions_ignored": "upstream/test_scaled_positions_ignored.py::test_a_layer_has_them[llama]",
    "shared_weight_counted_twice": "upstream/test_shared_weight_counted_twice.py::test_is_that_of_one_process",
    "special_ids_of_every_token": (
        "upstream/test_special_ids_of_every_token.py::test_are_looked_up_once_and_again_where_they_change"
    ),
    "stage1_frozen_parameters": "upstream/test_stage1_frozen_parameters.py::test_have_no_gradient",
    "stage3_frozen_parameters": (
        "upstream/test_stage3_frozen_parameters.py::test_are_slices_after_each_backward_pass[2-0]"
    ),
    "stage3_weight_decay": "upstream/test_stage3_weight_decay.py::test_sliced_weight_decays[corrected]",
    "store_aborts_at_exit": (
        "upstream/test_store_aborts_at_exit.py::test_ends_when_another_rank_leaves_after_its_destructors[corrected]"
    ),
}


@dataclass(frozen=True)
class Outcome:
    exit_code: int  # of pytest
    output: str


class Runner:
    """Runs corrections' tests in a copy of the repository, each with its correction switched off meanwhile."""

    def __init__(self, repository: Path):
        self.repository = repository
        command = [sys.executable, "-B", "-W", "ignore", "-m", "tests.upstream.without", "--serve"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, cwd=repository, **pipes)
        close_in_children(self.process.stdin, self.process.stdout)

    def __call__(self, name: str) -> Outcome:
        file = self.repository / "launch" / "upstream" / f"{name}.py"
        text = file.read_text(encoding="utf-8")
        file.write_text(text + NOTHING, encoding="utf-8")
        print(name, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        file.write_text(text, encoding="utf-8")
        return Outcome(**json.loads(answer))

    def close(self) -> None:
        self.process.stdin.close()
        end_process(self.process, "pytest without corrections", 60)


@contextmanager
def runner() -> Iterator[Runner]:
    with tempfile.TemporaryDirectory() as directory:
        for name in COPIED:
            source, target = ROOT / name, Path(directory, name)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "build"))
            else:
                shutil.copy(source, target)
        run = Runner(Path(directory))
        try:
            yield run
        finally:
            run.close()


def serve() -> None:
    """In the copy: run the test of each correction whose name comes on stdin, and answer with its outcome."""
    import tests.conftest

    answers = sys.stdout
    server = RankServer()
    server.start()  # before pytest runs, which would look upon it as left by a test, wait for it and end it
    stop, server.close = server.close, lambda: None  # the fixture closes it after each run of pytest
    tests.conftest.RankServer = lambda: server
    for line in sys.stdin:
        output = io.StringIO()
        with redirect_stdout(output):
            exit_code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", f"tests/{TESTS[line.strip()]}"])
        print(json.dumps({"exit_code": int(exit_code), "output": output.getvalue()}), file=answers, flush=True)
    stop()


def main(argv: list[str]) -> int:
    if argv == ["--serve"]:
        serve()
        return 0
    needed = True
    with runner() as run:
        for name in argv or TESTS:
            outcome = run(name)
            fails = outcome.exit_code == FAILED
            print(f"{name:30} {'fails without it' if fails else f'pytest ended with {outcome.exit_code}'}", flush=True)
            needed &= fails
    return 0 if needed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
