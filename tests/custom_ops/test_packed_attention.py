"""Many texts in one row, whose attention the compiled operator computes, get the logits and answers of each alone."""

import pytest

from launch.families.registry import FAMILIES
from tests.generation.test_packed import causal, difference

pytestmark = pytest.mark.long  # the operator is built first


def test_a_row_gives_each_text_the_logits_that_it_has_alone(fused_ranks):
    heads = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    models = [*((name, {}) for name in causal(FAMILIES)), ("llama", heads), ("qwen2", heads)]
    threads = {"OMP_NUM_THREADS": "2"}  # by the runtime that Paddle ships
    [found] = fused_ranks(1, "tests.generation.packed_ranks:compiled", models, environment=threads)
    for (name, _), (row, alone) in zip(models, found, strict=True):
        assert difference(row, alone) < 2e-6, name
        assert difference(alone[0], alone[1]) > 0.1, name


def test_two_processes_give_the_logits_of_one(fused_ranks, tmp_path):
    names = ["llama", "bloom", "chatglm_v2"]
    fused_ranks(1, "tests.families.family_ranks:save_all", names, str(tmp_path))
    [one] = fused_ranks(1, "tests.generation.packed_ranks:saved", str(tmp_path), names, 1, True)
    first, second = fused_ranks(2, "tests.generation.packed_ranks:saved", str(tmp_path), names, 2, True)
    assert first == second
    for name in names:
        assert difference(first[name][0], one[name][0]) < 2e-6, name


def test_a_server_says_so_and_answers_texts_in_company_as_alone(fused_ranks, served):
    [found] = fused_ranks(1, "tests.serving.continuous_ranks:in_company", str(served))
    assert found["description"].endswith("; compiled operators")
    assert found["together"] == found["alone"]
    assert found["mixed"] == 3 and found["left"] == 0
