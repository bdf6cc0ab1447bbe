"""What the ranks decide together: one rank's card, or its start-up check, counts for all."""

import pytest

RANKS = "tests.training.decision_ranks"
H100, A100, V100 = [9, 0], [8, 0], [7, 0]
FP16, REQUIRED = {"bf16": False, "fp16": True}, {"use_flash_attention": "required"}
TP2 = {"tensor_parallel_degree": 2}
OVERLAP, ROPE = "tensor_parallel_overlap", "use_fused_rope"
WRONG = "its result is off by 1"
BOTH_ON = ["fused rotary embedding: on", "tensor parallel beside products: on"]

# (what decide() gets, what every rank finds); a line is told by its number.
CASES = {
    "two good cards; 4 heads of 16, half of them each; a length of whole blocks and an odd one": (
        {"cards": [A100, A100], "training": TP2},
        {"flash": True, 0: "precision: bfloat16", 1: "flash attention: on"}
        | {"checked": [[2, 2, 16, "bfloat16", [[192, 0, 0], [287, 0, 0]]]]},
    ),
    "the shapes of the run are tried: with a prefix": (
        {"cards": [A100], "prefix": True},
        {"checked": [[4, 4, 16, "bfloat16", [[192, 24, 0], [287, 24, 0]]]]},
    ),
    "the shapes of the run are tried: with padding": (
        {"cards": [A100], "mask": "dense"},
        {"checked": [[4, 4, 16, "bfloat16", [[192, 0, 0], [287, 0, 0], [192, 0, 40], [287, 0, 40]]]]},
    ),
    "packed rows need no mask where FlashMask is right": (
        {"cards": [A100], "mask": "dense", "packed": True},
        {"flash": True, 2: "FlashMask for packed rows: on"},
    ),
    "where it is wrong they have one": (
        {"cards": [A100], "verdicts": ["dense alone"], "mask": "dense", "packed": True},
        {"flash": True, 2: "FlashMask for packed rows: off (its result is off), a mask of each row"},
    ),
    "and in a pipeline": (
        {"cards": [A100], "training": {"pipeline_parallel_degree": 2}, "mask": "dense", "packed": True},
        {"flash": True, 2: "FlashMask for packed rows: off (a pipeline tells the masks it sends apart by their dtypes"},
    ),
    "version 3 on Hopper": (
        {"cards": [H100], "model": {"model_name_or_path": "llama-7b"}},
        {"flash": True, 1: "flash attention: on", 2: "flash attention 3: on"},
    ),
    "but with another card beside it on neither": (
        {"cards": [H100, A100], "model": {"model_name_or_path": "llama-7b"}},
        {2: "flash attention 3: off (on rank 1: compute capability 8.0, it is for 9.0 alone), flash attention 2"},
    ),
    "but not with masks": (
        {"cards": [H100], "model": {"model_name_or_path": "llama-7b"}, "mask": "dense"},
        {2: "flash attention 3: off (it has neither masks nor a prefix), flash attention 2"},
    ),
    "and not for small heads": (
        {"cards": [H100]},
        {2: "flash attention 3: off (heads of 16, it is used for 64 and 128), flash attention 2"},
    ),
    "one old card counts for all": (
        {"cards": [A100, V100], "training": FP16, "mask": "dense"},
        {"flash": False, "checked": [], 1: "flash attention: off (on rank 1: compute capability 7.0"},
    ),
    "where it is required it is refused": (
        {"cards": [A100, V100], "model": REQUIRED, "training": FP16, "mask": "dense"},
        {"error": "not possible here: on rank 1: compute capability 7.0"},
    ),
    "an old card takes the memory efficient kernel and says so": (
        {"cards": [V100], "training": FP16},
        {1: "flash attention: on, by the memory efficient kernel, the one for compute capability 7.0"},
    ),
    "a build without the kernel, as Paddle's for the CPU": (
        {"cards": [A100], "verdicts": ["no kernel"]},
        {1: "flash attention: off (this build of Paddle has no flash attention), exact attention", "checked": []},
    ),
    "a build without the other kernel": (
        {"cards": [V100], "verdicts": ["no kernel"], "training": FP16},
        {1: "flash attention: off (this build of Paddle has no memory efficient attention), exact attention"},
    ),
    "one failed check counts for all": (
        {"cards": [A100, A100], "verdicts": [WRONG, ""]},
        {1: f"flash attention: off (on rank 0: {WRONG}), exact attention"},
    ),
    "where it is required it is refused, too": (
        {"cards": [A100, A100], "verdicts": [WRONG, ""], "model": REQUIRED},
        {"error": f"required: not possible here: on rank 0: {WRONG}"},
    ),
    "the real check: on a CPU Paddle has no kernel for it in half precision, and says so": (
        {"cards": [A100], "verdicts": ["run"]},
        {1: "flash attention: off (it fails here: "},
    ),
    "nothing is checked where it is off": (
        {"cards": [A100], "verdicts": ["run"], "model": {"use_flash_attention": "off"}},
        {"checked": []},
    ),
    "kernels are used where they are right on all ranks": (
        {"cards": [A100, A100], "training": TP2},
        {"kernels": [OVERLAP, ROPE], 3: BOTH_ON[0], 4: BOTH_ON[1], "overlapping": [False]},
    ),
    "not where one is wrong": (
        {"cards": [A100, A100], "training": TP2}
        | {"kernels": {"rope": ["", WRONG], "overlap": ["it fails here: no", ""]}},
        {"kernels": [], "overlapping": []}
        | {3: f"fused rotary embedding: off (on rank 1: {WRONG}), separate operators"}
        | {4: "tensor parallel beside products: off (on rank 0: it fails here: no), one after the other"},
    ),
    "not where they are off": (
        {"cards": [A100, A100], "model": {OVERLAP: "off", ROPE: "off"}, "training": TP2 | {"fp16_opt_level": "O1"}}
        | {"kernels": {"rope": ["never tried"] * 2, "overlap": ["never tried"] * 2}},
        {"kernels": [], "overlapping": []}
        | {3: "fused rotary embedding: off by --use_fused_rope off, separate operators"}
        | {4: "tensor parallel beside products: off by --tensor_parallel_overlap off, one after the other"},
    ),
    "nothing to overlap": ({"cards": [A100, A100]}, {"kernels": [ROPE], 3: BOTH_ON[0], "overlapping": []}),
    "overlapping by the user": (
        {"cards": [A100, A100], "training": TP2 | {"tensor_parallel_config": "enable_mp_async_allreduce"}},
        {"kernels": [ROPE], 3: BOTH_ON[0], "overlapping": []},
    ),
    "a required kernel that is wrong is an error": (
        {"cards": [A100, A100], "model": {ROPE: "required"}, "kernels": {"rope": [WRONG, ""]}},
        {"error": f"--use_fused_rope required: not possible here: on rank 0: {WRONG}. Use --use_fused_rope auto for"},
    ),
}


def test_decisions(ranks):
    for cards in (1, 2):
        chosen = {name: case for name, case in CASES.items() if len(case[0]["cards"]) == cards}
        for of_rank in ranks(cards, f"{RANKS}:decide_all", [given for given, _ in chosen.values()]):
            for (name, (_, expected)), decided in zip(chosen.items(), of_rank, strict=True):
                assert ("error" in decided) == ("error" in expected), (name, decided)
                for key, value in expected.items():
                    if key == "error":
                        assert value in decided["error"], name
                    elif isinstance(key, int):
                        assert decided["lines"][key].startswith(value), (name, decided["lines"])
                    else:
                        assert decided[key] == value, name
                if 3 in expected:
                    assert len(decided["lines"]) == 3 + (3 in expected) + (4 in expected), name


RMS_NORM = f"{RANKS}:decide_rms_norm"
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


@pytest.mark.long
def test_the_norms_of_heads_are_tried_with_more_rows_than_a_grid_has_blocks(ranks):
    for kind, enabled in (("right", True), ("few rows", False)):
        [decided] = ranks(1, RMS_NORM, A100, [kind], {"model_name_or_path": "qwen3-8b"}, {})
        assert [size for size, _ in decided["tried"]][:2] == [4096, 128] and decided["enabled"] == enabled
        assert decided["parts"][:2] == [True, True]  # of tensors with longer rows
    assert decided["line"].endswith("allowed 2e-02 (65,600 rows of 128)), the framework's own RMSNorm")


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
    decided = ranks(2, f"{RANKS}:decide_by_card", [A100, V100])
    assert ["some ranks have cards with bfloat16" in one["error"] for one in decided] == [True, True]


def test_what_the_trainer_is_given(ranks):
    cases = [
        ([], None, (False, False)),
        (["--bf16", "auto"], A100, (True, False)),
        (["--bf16", "auto"], V100, (False, True)),
        (["--bf16", "auto", "--fp16", "1"], A100, (True, False)),
        (["--bf16", "auto"], None, (False, False)),
        (["--bf16"], A100, (True, False)),
        (["--bf16", "1"], A100, (True, False)),
        (["--bf16", "0", "--fp16", "1"], V100, (False, True)),
    ]
    refused = ["--bf16", "1"], V100
    [parsed] = ranks(1, f"{RANKS}:parse_all", [*(case[:2] for case in cases), refused])
    for (flags, card, expected), found in zip(cases, parsed[:-1], strict=True):
        assert (found["bf16"], found["fp16"]) == expected, (flags, card)
    assert "--bf16: found on, but compute capability 7.0 has no bfloat16" in parsed[-1]["error"]
