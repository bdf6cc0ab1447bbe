"""What the ranks decide together: one rank's card, or its start-up check, counts for all."""

import pytest

DECIDE = "tests.training.decision_ranks:decide"
PARSE = "tests.training.decision_ranks:parse"
A100, V100 = [8, 0], [7, 0]
GOOD = ["", ""]


def test_two_good_cards(ranks):
    for decided in ranks(2, DECIDE, [A100, A100], GOOD, {}, {"tensor_parallel_degree": 2}):
        assert decided["flash"] is True
        assert decided["lines"][:2] == ["precision: bfloat16", "flash attention: on"]
        # 4 heads of 16, half of them each; a length of whole blocks and an odd one
        assert decided["checked"] == [[2, 2, 16, "bfloat16", [[192, 0, 0], [287, 0, 0]]]]


@pytest.mark.parametrize(
    ("mask", "prefix", "tried"),
    [
        ("causal", True, [[192, 24, 0], [287, 24, 0]]),
        ("dense", False, [[192, 0, 0], [287, 0, 0], [192, 0, 40], [287, 0, 40]]),
    ],
)
def test_the_shapes_of_the_run_are_tried(ranks, mask, prefix, tried):
    [decided] = ranks(1, DECIDE, [A100], GOOD, {}, {}, mask, prefix)
    assert decided["checked"] == [[4, 4, 16, "bfloat16", tried]]


@pytest.mark.parametrize(
    ("verdict", "layout", "told"),
    [
        ("", {}, "FlashMask for packed rows: on"),
        ("dense alone", {}, "FlashMask for packed rows: off (its result is off), a mask of each row"),
        ("", {"pipeline_parallel_degree": 2}, "off (a pipeline tells the masks it sends apart by their dtypes alone)"),
    ],
)
def test_packed_rows_need_no_mask_where_flash_mask_is_right(ranks, verdict, layout, told):
    [decided] = ranks(1, DECIDE, [A100], [verdict], {}, layout, "dense", False, True)
    assert decided["flash"] is True and told in decided["lines"][2]


def test_one_old_card_counts_for_all(ranks):
    training = {"bf16": False, "fp16": True}
    for decided in ranks(2, DECIDE, [A100, V100], GOOD, {}, training, "dense"):
        assert (decided["flash"], decided["checked"]) == (False, [])
        assert decided["lines"][1].startswith("flash attention: off (on rank 1: compute capability 7.0")
    for decided in ranks(2, DECIDE, [A100, V100], GOOD, {"use_flash_attention": "required"}, training, "dense"):
        assert "not possible here: on rank 1: compute capability 7.0" in decided["error"]


def test_an_old_card_takes_the_memory_efficient_kernel_and_says_so(ranks):
    [decided] = ranks(1, DECIDE, [V100], GOOD, {}, {"bf16": False, "fp16": True})
    expected = "flash attention: on, by the memory efficient kernel, the one for compute capability 7.0"
    assert decided["lines"][1] == expected


@pytest.mark.parametrize(("card", "kernel"), [(A100, "flash"), (V100, "memory efficient")])
def test_a_build_without_the_kernel_is_told(ranks, card, kernel):
    """As Paddle's CPU build is."""
    [decided] = ranks(1, DECIDE, [card], ["no kernel"], {}, {"bf16": card == A100, "fp16": card == V100})
    expected = f"flash attention: off (this build of Paddle has no {kernel} attention), exact attention"
    assert (decided["lines"][1], decided["checked"]) == (expected, [])


def test_one_failed_check_counts_for_all(ranks):
    verdicts = ["its result is off by 1", ""]
    for decided in ranks(2, DECIDE, [A100, A100], verdicts, {}, {}):
        assert decided["lines"][1] == "flash attention: off (on rank 0: its result is off by 1), exact attention"
    for decided in ranks(2, DECIDE, [A100, A100], verdicts, {"use_flash_attention": "required"}, {}):
        assert "required: not possible here: on rank 0: its result is off by 1" in decided["error"]


TP2 = {"tensor_parallel_degree": 2}
BOTH = ["tensor_parallel_overlap", "use_fused_rope"]


@pytest.mark.parametrize(
    ("model", "training", "kernels", "used", "lines"),
    [
        ({}, TP2, {}, BOTH, ["fused rotary embedding: on", "tensor parallel beside products: on"]),
        (
            {},
            TP2,
            {"rope": ["", "its result is off by 1"], "overlap": ["it fails here: no", ""]},
            [],
            [
                "fused rotary embedding: off (on rank 1: its result is off by 1), separate operators",
                "tensor parallel beside products: off (on rank 0: it fails here: no), one after the other",
            ],
        ),
        (
            dict.fromkeys(BOTH, "off"),
            TP2 | {"fp16_opt_level": "O1"},
            {"rope": ["never tried"] * 2, "overlap": ["never tried"] * 2},
            [],
            [
                "fused rotary embedding: off by --use_fused_rope off, separate operators",
                "tensor parallel beside products: off by --tensor_parallel_overlap off, one after the other",
            ],
        ),
        ({}, {}, {}, BOTH[1:], ["fused rotary embedding: on"]),
        (
            {},
            TP2 | {"tensor_parallel_config": "enable_mp_async_allreduce"},
            {},
            BOTH[1:],
            ["fused rotary embedding: on"],
        ),
    ],
)
def test_kernels_are_used_where_they_are_right_on_all_ranks(ranks, model, training, kernels, used, lines):
    for decided in ranks(2, DECIDE, [A100, A100], GOOD, model, training, "causal", False, False, kernels):
        assert (decided["kernels"], decided["lines"][3:]) == (used, lines)
        assert decided["overlapping"] == ([False] if BOTH[0] in used else [])


def test_a_required_kernel_that_is_wrong_is_an_error(ranks):
    model, kernels = {"use_fused_rope": "required"}, {"rope": ["its result is off by 1", ""]}
    for decided in ranks(2, DECIDE, [A100, A100], GOOD, model, {}, "causal", False, False, kernels):
        assert decided["error"] == (
            "--use_fused_rope required: not possible here: on rank 0: its result is off by 1. Use --use_fused_rope "
            "auto for separate operators."
        )


RMS_NORM = "tests.training.decision_ranks:decide_rms_norm"
NO_CUDA = "the module fused_ln was built without CUDA: make custom-ops, where nvcc is found"


@pytest.mark.parametrize(
    ("training", "dtype"),
    [({}, "bfloat16"), ({"bf16": False, "fp16": True}, "float16"), ({"fp16_opt_level": "O1"}, "float32")],
)
def test_paddles_rms_norm_takes_the_place_of_fused_ln(ranks, training, dtype):
    """Tried as the run will use it, under O1 with half precision given to weights in float32."""
    [decided] = ranks(1, RMS_NORM, A100, ["right"], {}, training)
    assert decided["line"] == f"fused RMSNorm: on, by paddle.nn.functional.rms_norm ({NO_CUDA})"
    assert (decided["enabled"], decided["tried"][0]) == (True, [64, dtype])
    assert len(decided["tried"]) == 1 + 3  # by the check, and by the three norms of the model
    assert decided["losses"][0] == pytest.approx(decided["losses"][1], abs=2e-6)


def test_paddles_rms_norm_that_is_wrong_on_one_rank_is_used_on_none(ranks):
    for decided in ranks(2, RMS_NORM, A100, ["right", "wrong"], {}, {}):
        assert decided["line"].startswith(
            f"fused RMSNorm: off ({NO_CUDA}; on rank 1: paddle.nn.functional.rms_norm's result is off by "
        )
        assert decided["line"].endswith("), the framework's own RMSNorm")
        assert (decided["enabled"], len(decided["tried"])) == (False, 1)


def test_without_a_kernel_in_paddle_rms_norm_is_composed(ranks):
    """As in Paddle's CPU build."""
    [decided] = ranks(1, RMS_NORM, A100, ["none"], {}, {})
    reason = "paddle.nn.functional.rms_norm fails here: RuntimeError: (NotFound) "
    reason += "The kernel `rms_norm` is not registered"
    assert f"; {reason}" in decided["line"]
    assert not decided["enabled"]


@pytest.mark.parametrize(
    ("capability", "model"),
    [(None, {}), (A100, {"use_fused_rms_norm": "off"}), (A100, {"model_name_or_path": "opt-6.7b"})],
)
def test_paddles_rms_norm_is_not_tried_on_a_cpu_nor_where_nothing_calls_it(ranks, capability, model):
    [decided] = ranks(1, RMS_NORM, capability, ["right"], model, {})
    assert (decided["enabled"], decided["tried"]) == (False, [])


def test_what_is_required_is_fused_ln(ranks):
    with pytest.raises(AssertionError, match="error: --use_fused_rms_norm required: not possible here: the module"):
        ranks(1, RMS_NORM, A100, ["right"], {"use_fused_rms_norm": "required"}, {})


def test_ranks_that_came_to_different_precisions_do_not_train(ranks):
    decided = ranks(2, "tests.training.decision_ranks:decide_by_card", [A100, V100])
    assert ["some ranks have cards with bfloat16" in one["error"] for one in decided] == [True, True]


def test_the_check_is_made_where_flash_attention_may_be_used(ranks):
    """With the real check: on a CPU Paddle has no kernel for it in half precision, and says so."""
    [decided] = ranks(1, DECIDE, [A100], ["run"], {}, {})
    assert decided["lines"][1].startswith("flash attention: off (it fails here: ")
    [off] = ranks(1, DECIDE, [A100], ["run"], {"use_flash_attention": "off"}, {})
    assert off["checked"] == []


@pytest.mark.parametrize(
    ("flags", "capability", "expected"),
    [
        ([], None, (False, False)),
        (["--bf16", "auto"], A100, (True, False)),
        (["--bf16", "auto"], V100, (False, True)),
        (["--bf16", "auto", "--fp16", "1"], A100, (True, False)),
        (["--bf16", "auto"], None, (False, False)),
        (["--bf16"], A100, (True, False)),
        (["--bf16", "1"], A100, (True, False)),
        (["--bf16", "0", "--fp16", "1"], V100, (False, True)),
    ],
)
def test_what_the_trainer_is_given(ranks, flags, capability, expected):
    [parsed] = ranks(1, PARSE, flags, capability)
    assert (parsed["bf16"], parsed["fp16"]) == expected


def test_bfloat16_on_a_v100_does_not_start(ranks):
    [parsed] = ranks(1, PARSE, ["--bf16", "1"], V100)
    assert "--bf16: found on, but compute capability 7.0 has no bfloat16" in parsed["error"]
