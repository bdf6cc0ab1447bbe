"""The checks of kernels at start, given right and wrong functions. On a CPU: they were not run on GPUs."""

import pytest

RANKS = "tests.training.kernel_check_ranks"
GROUPED = (4, 2, 32)
ALIBI = (5, 5, 32, True)  # of Baichuan-13B, whose 40 heads are no power of 2, either

RIGHT = [
    *[(name, dtype, GROUPED, "dense") for name in ("right", "rounded") for dtype in ("bfloat16", "float16")],
    *[("rounded", "float16", heads, "dense") for heads in [(1, 1, 8), (8, 8, 64), (6, 2, 128), (2, 2, 256)]],
    *[("paddlenlps_llama", "bfloat16", GROUPED, kind) for kind in ("dense", "prefix", "packed")],
    *[("paddlenlps_chatglm", "bfloat16", GROUPED, kind) for kind in ("dense", "prefix")],
    *[("paddlenlps_baichuan", "bfloat16", ALIBI, kind) for kind in ("dense", "prefix", "packed")],
    ("rounded", "bfloat16", GROUPED, "prefix"),
    ("ignores_the_mask", "bfloat16", GROUPED, "causal"),  # without padding there is nothing to ignore
]
WITHOUT_BIAS = ("right", "bfloat16", ALIBI, "causal")
WRONG = {  # name: (kind of shapes, what is told)
    "not_causal": ("causal", "its result is off by"),
    "zero": ("causal", "its result is off by 1 of exact attention's, allowed 0.016"),
    "not_a_number": ("causal", "its result is off by nan"),
    "one_position_is_garbage": ("causal", "its result is off by"),
    "wrong_group": ("causal", "its result is off by"),
    "mixes_samples": ("causal", "its result is off by"),
    "scaled_gradient": ("causal", "its key gradient is off by 1 of"),
    "lost_gradient": ("causal", "its query gradient is off by 1 of"),
    "ignores_the_mask": ("dense", "its result is off by"),
    "aligned_top_left": ("prefix", "allowed 0.016 (192 tokens, 21 keys of a prefix)"),
    "wrong_at_odd_lengths": ("causal", "allowed 0.016 (287 tokens)"),
    "ignores_the_ends": ("packed", "(192 tokens, samples of 75 by FlashMask)"),
    "refuses": ("causal", "it fails here: ExternalError: Error in Flash-Attention, detail information is: `is_sm8x"),
}


def test_one_that_is_right_and_two_that_are_wrong(ranks):
    cases = [RIGHT[0], *((name, "bfloat16", GROUPED, "causal") for name in ("not_causal", "scaled_gradient"))]
    [[right, *wrong]] = ranks(1, f"{RANKS}:verdicts", cases)
    assert right == ""
    for (name, *_), told in zip(cases[1:], wrong, strict=True):
        assert WRONG[name][1] in told


@pytest.mark.long
def test_what_is_right_passes_and_what_is_wrong_is_told(ranks):
    wrong = [(name, "bfloat16", GROUPED, kind) for name, (kind, _) in WRONG.items()]
    [told] = ranks(1, f"{RANKS}:verdicts", [*RIGHT, WITHOUT_BIAS, *wrong])
    found = dict(zip([*RIGHT, "without bias", *WRONG], told, strict=True))
    assert {case: found.pop(case) for case in RIGHT} == dict.fromkeys(RIGHT, "")
    expected = {name: told for name, (_, told) in WRONG.items()} | {"without bias": "its result is off by"}
    assert {name: told if told in found[name] else found[name] for name, told in expected.items()} == expected


@pytest.mark.parametrize(
    ("kind", "found", "calls"),
    [
        ("right", "", 1),
        ("wrong", "its result is off by 0.1", 1),
        pytest.param("none", "this build of Paddle has no libflashattnv3.so", 0, marks=pytest.mark.long),
        pytest.param("for a CPU", "it fails here: ", 0, marks=pytest.mark.long),
    ],
)
def test_flash_attention_3_is_tried_by_the_function_that_the_model_calls(ranks, kind, found, calls):
    """With the arguments that paddle.nn.functional.flash_attention.flash_attention gives it."""
    [[verdict, given, stays]] = ranks(1, f"{RANKS}:by_version_3", kind)
    assert verdict.startswith(found) and bool(verdict) == bool(found) and not stays
    assert given == calls * [[None, None, None, None, 0.125, True, -1, -1, 0.0, 1, False, False, 0]]
    if kind == "for a CPU":
        assert "flash_attn_v3" in verdict and "argument" not in verdict, "the operator takes them"


def test_the_check_draws_none_of_paddles_random_numbers(ranks):
    assert ranks(1, f"{RANKS}:leaves_random_numbers_alone") == [True]


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("right", ""),
        ("a wrong gradient", "the module fused_ln's gradient is off by 2, allowed 1e-05"),
        pytest.param("another epsilon", "the module fused_ln's result is off by 0.0", marks=pytest.mark.long),
        pytest.param("not a number", "the module fused_ln's result is off by nan", marks=pytest.mark.long),
        ("fails", "the module fused_ln fails here: OSError: no kernel image for this card"),
    ],
)
def test_a_fused_ln_that_fails_or_is_wrong_is_found_before_it_is_used(ranks, kind, found):
    (message,) = ranks(1, f"{RANKS}:rms_norm_verdict", kind, "float32", "float32")
    assert message.startswith(found) and bool(message) == bool(found)


@pytest.mark.long
@pytest.mark.parametrize("dtypes", [("bfloat16", "bfloat16"), ("float16", "float16"), ("bfloat16", "float32")])
def test_fused_ln_is_tried_in_the_dtypes_of_the_run(ranks, dtypes):
    assert ranks(1, f"{RANKS}:rms_norm_verdict", "right", *dtypes) == [""]
    (message,) = ranks(1, f"{RANKS}:rms_norm_verdict", "another epsilon", *dtypes)
    allowed = {"bfloat16": "2e-02", "float16": "2e-03", "float32": "1e-05"}[dtypes[1]]
    assert message.startswith("the module fused_ln's result is off by 0.0") and message.endswith(f"allowed {allowed}")
