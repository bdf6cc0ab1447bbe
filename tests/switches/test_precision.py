"""bfloat16 or float16, by the card: --bf16 and --fp16, or --precision in their place."""

import pytest

from launch.errors import UserError
from launch.switches import precision
from launch.switches.precision import attention_dtype, describe, describe_choice, inference_dtype, resolve, stated

CPU, V100, T4, A100, H100 = None, (7, 0), (7, 5), (8, 0), (9, 0)


@pytest.mark.parametrize(
    ("bf16", "fp16", "card", "expected"),
    [
        ("off", False, CPU, (False, False)),
        ("off", True, A100, (False, True)),
        ("on", False, A100, (True, False)),
        ("required", False, H100, (True, False)),
        ("auto", True, A100, (True, False)),
        ("auto", False, V100, (False, True)),
        ("auto", False, CPU, (False, False)),
        ("on", True, A100, (True, True)),  # which PaddleNLP refuses
    ],
)
def test_what_the_switches_become(bf16, fp16, card, expected):
    assert resolve(bf16, fp16, card) == expected


@pytest.mark.parametrize(
    ("flag", "card", "expected"),
    [
        ("auto", T4, (False, True)),
        ("auto", A100, (True, False)),
        ("auto", CPU, (False, False)),
        ("fp16", A100, (False, True)),
        ("bf16", A100, (True, False)),
        ("fp32", A100, (False, False)),
    ],
)
def test_what_precision_becomes(flag, card, expected):
    assert resolve(*stated(flag, "off", False), card) == expected
    assert stated(None, "auto", True) == ("auto", True)  # without it the other flags count


@pytest.mark.parametrize(
    ("requested", "weights", "card", "dtype"),
    [
        (None, "bfloat16", CPU, "float32"),
        (None, "bfloat16", A100, "bfloat16"),
        (None, "bfloat16", T4, "float16"),
        (None, "float32", T4, "float32"),
        ("float32", "bfloat16", T4, "float32"),
    ],
)
def test_a_model_answers_in_the_dtype_that_the_card_has(requested, weights, card, dtype):
    found, line = inference_dtype(requested, weights, card)
    reason = "not the weights' bfloat16: compute capability 7.5 has no bfloat16, 8.0 (A100, 3090) has"
    assert (found, line) == (dtype, f"precision: float16, {reason}" if dtype == "float16" else "")
    with pytest.raises(UserError, match="--dtype: found bfloat16, but compute capability 7.0 .* --dtype float16"):
        inference_dtype("bfloat16", weights, V100)


def test_a_model_answers_in_bfloat16_on_a_cpu_that_has_it(monkeypatch):
    monkeypatch.setattr(precision, "bfloat16_obstacle", lambda: "")
    dtype, line = inference_dtype("bfloat16", "float32", CPU)
    assert dtype == "float32" and line.startswith("precision: weights in bfloat16 in products")
    monkeypatch.setattr(precision, "bfloat16_obstacle", lambda: "it has none")
    with pytest.raises(UserError, match="^--dtype: found bfloat16, but it has none. Use --dtype float32.$"):
        inference_dtype("bfloat16", "bfloat16", CPU)


@pytest.mark.parametrize("switch", ["on", "required"])
@pytest.mark.parametrize(
    ("card", "told"),
    [
        (V100, "7.0 has no bfloat16.*--fp16 1 --scale_loss 32768"),
        (CPU, "the CPU has no kernels in half precision. Use --bf16 0."),
    ],
)
def test_bfloat16_is_refused_where_there_is_none(switch, card, told):
    with pytest.raises(UserError, match=rf"--bf16: found {switch}, but .*{told}"):
        resolve(switch, False, card)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (describe(True, False, 1024.0, A100), "precision: bfloat16"),
        (describe(False, True, 1024.0, A100), "precision: float16, loss scale 1024"),
        (describe(False, True, 32768.0, V100), "loss scale 32768 (compute capability 7.0 has no bfloat16, 8.0 (A100,"),
        (describe(False, True, 1024.0, CPU), "precision: float32, as the CPU has no kernels in half precision; loss"),
        (describe(False, False, 1024.0, CPU), "precision: float32"),
        (describe_choice(True, 1024.0, A100), "bfloat16, chosen as compute capability 8.0 has it: the range of"),
        (describe_choice(False, 32768.0, V100), "float16, loss scale 32768, chosen as compute capability 7.0 has no"),
        (
            describe_choice(False, 32768.0, CPU),
            "float32, chosen here as the CPU has no kernels in half precision; cards",
        ),
    ],
)
def test_the_line_says_which_and_why(line, said):
    assert said in line and line.startswith("precision: ")


@pytest.mark.parametrize(
    ("bf16", "fp16", "level", "dtype"),
    [
        (True, False, "O2", "bfloat16"),
        (False, True, "O1", "float16"),
        (True, False, "O0", "float32"),
        (False, False, "O2", "float32"),
    ],
)
def test_the_dtype_of_attention(bf16, fp16, level, dtype):
    assert attention_dtype(bf16, fp16, level) == dtype
