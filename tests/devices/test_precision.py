"""bfloat16 or float16, by the card."""

import pytest

from launch.devices.precision import attention_dtype, describe, resolve
from launch.errors import UserError

CPU, V100, T4, A100, H100 = None, (7, 0), (7, 5), (8, 0), (9, 0)


@pytest.mark.parametrize(
    ("bf16", "fp16", "card", "expected"),
    [
        ("off", False, CPU, (False, False)),
        ("off", True, V100, (False, True)),
        ("off", True, A100, (False, True)),
        ("on", False, A100, (True, False)),
        ("required", False, H100, (True, False)),
        ("auto", False, A100, (True, False)),
        ("auto", True, A100, (True, False)),
        ("auto", False, V100, (False, True)),
        ("auto", False, T4, (False, True)),
        ("auto", False, CPU, (False, False)),
        ("on", True, A100, (True, True)),  # which PaddleNLP refuses
    ],
)
def test_what_the_switch_becomes(bf16, fp16, card, expected):
    assert resolve(bf16, fp16, card) == expected


@pytest.mark.parametrize("switch", ["on", "required"])
@pytest.mark.parametrize(("card", "told"), [(V100, "7.0 has no bfloat16"), (T4, "7.5 has no bfloat16")])
def test_bfloat16_is_refused_where_there_is_none(switch, card, told):
    with pytest.raises(UserError, match=rf"--bf16: found {switch}, but .*{told}.*--fp16 1 --scale_loss 32768"):
        resolve(switch, False, card)


def test_bfloat16_is_refused_on_a_cpu():
    with pytest.raises(UserError, match="found on, but the CPU has no kernels in half precision. Use --bf16 0."):
        resolve("on", False, CPU)


def test_the_line_says_which_and_why():
    assert describe(True, False, 1024.0, A100) == "precision: bfloat16"
    assert describe(False, True, 1024.0, A100) == "precision: float16, loss scale 1024"
    assert describe(False, True, 32768.0, V100) == (
        "precision: float16, loss scale 32768 (compute capability 7.0 has no bfloat16, 8.0 (A100, 3090) has)"
    )
    assert describe(False, True, 1024.0, CPU) == (
        "precision: float32, as the CPU has no kernels in half precision; loss scale 1024 as for float16"
    )
    assert describe(False, False, 1024.0, CPU) == "precision: float32"


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
