"""Moments in 8 bits, and updates within the backward pass, beside AdamW in float32."""

import numpy as np
import pytest

from launch.families.arithmetic import MOMENT_BLOCK
from tests.distributed.cells import ANSWERED, PRETRAINING, REINFORCEMENT
from tests.runs import STEPS as STEPS_OF_RUN
from tests.training.eight_bit_ranks import ELEMENTS

SMALLEST = 2.0**-15  # below which codes are evenly spaced
LONG = pytest.mark.long


@pytest.fixture(scope="module")
def optimized(ranks) -> dict[str, dict]:
    """What each kind of optimizer comes to after one step and after all, and in host memory."""
    [found] = ranks(1, "tests.training.eight_bit_ranks:optimize")
    return {kind: {name: np.array(one) for name, one in numbers.items()} for kind, numbers in found.items()}


def test_codes_are_within_a_part_of_their_size_and_right_on_average(optimized):
    """A step from 0 is float64's in NumPy; of each code the error is less than the distance of two codes, and of all
    of a moment the mean is that of so many independent roundings: 4 of its standard deviations."""
    one, gradient = optimized["one step"], optimized["one step"]["gradient"].astype(np.float64)
    exact = {"first": 0.1 * gradient, "root": np.sqrt(0.001) * np.abs(gradient)}
    for name, parts in (("first", 8), ("root", 16)):
        blocks = np.append(np.abs(exact[name]), np.zeros(-ELEMENTS % MOMENT_BLOCK)).reshape(-1, MOMENT_BLOCK)
        scale = np.repeat(blocks.max(axis=1), MOMENT_BLOCK)[:ELEMENTS]
        # A value's distance to the next: its own size's power of two over the parts; a float32's rounding beside it.
        distance = 2.0 ** np.floor(np.log2(np.abs(exact[name]) / scale + SMALLEST)) * scale / parts
        error = one[name] - exact[name]
        assert (np.abs(error) <= distance * (1 + 1e-4)).all()
        assert abs((error / distance).sum()) < 4 * 0.5 * np.sqrt(ELEMENTS)
        assert (one[name][gradient == 0] == 0).all()
    assert (one["root"][gradient != 0] > 0).all()
    assert (one["weight"] == optimized["adamw, one step"]["weight"]).all()  # moments are rounded after it


def test_many_steps_are_those_of_adamw_but_for_a_part_of_the_way(optimized):
    """Weights in bfloat16 go as far on average, each by chance; rounded to the nearest number they stand still."""
    start, expected = optimized["adamw"]["start"], optimized["adamw"]["weight"]
    way = expected - start
    assert np.abs(optimized["float32"]["weight"] - expected).mean() < 0.05 * np.abs(way).mean()
    along = {kind: (one["weight"] - start) @ way / (way @ way) for kind, one in optimized.items() if "16" in kind}
    assert along["bfloat16"] == pytest.approx(1, abs=0.1) and along["bfloat16, nearest"] < 0.2
    ratio = optimized["float32"]["root"] ** 2 / optimized["adamw"]["second"]
    assert abs(ratio.mean() - 1) < 0.05


def test_pages_in_host_memory_change_no_bit(optimized):
    for name, values in optimized["float32"].items():
        assert (optimized["in host memory"][name] == values).all()
    blocks = -(-ELEMENTS // MOMENT_BLOCK)
    assert optimized["in host memory"]["host"] == 2 * ELEMENTS + 8 * blocks


def test_gradients_are_clipped_by_the_norm_before_or_the_larger_one_so_far(optimized):
    found, last = optimized["clipping"], np.sqrt(0.5**2 + 8**2)
    np.testing.assert_allclose(found["norms"], [5, np.sqrt(2), last], rtol=1e-6)
    expected = [3 * 2 / 3, 4 * 2 / 5, 2 / 5, 2 / 5, 0.5, 8 * 2 / last]
    np.testing.assert_allclose(found["gradients"], expected, rtol=1e-6)


IN_BACKWARD = {"update_in_backward": 1}
EIGHT_BITS = IN_BACKWARD | {"optim": "adamw_8bit"}
CHUNKS = {"loss_chunk_tokens": 24}
BY_ROWS = CHUNKS | {"observers": ["tests.training.eight_bit_ranks:few_at_once"]}
RECOMPUTE = {"recompute": 1}
PAGED = BY_ROWS | {"offload_optim": 1}
FACTORED = {"optim": "adafactor"}
HALF = {"bf16": 1, "fp16_opt_level": "O2"}
HALF["observers"] = [*PAGED["observers"], "tests.checkpoint.half_ranks:observe"]


def losses(run) -> list[float]:
    return [*run.column("loss"), run.evaluation["eval_loss"]]


@LONG
@pytest.mark.parametrize(
    ("method", "model", "flags"),
    [
        (PRETRAINING, "model", CHUNKS),
        (PRETRAINING, "tied", CHUNKS),
        (PRETRAINING, "qwen3", RECOMPUTE),
        (PRETRAINING, "model", RECOMPUTE),
        (REINFORCEMENT, "wide", CHUNKS | ANSWERED | {"rollout_steps": 2}),
    ],
)
def test_without_clipping_updates_in_the_backward_pass_are_those_after_it(runs, method, model, flags):
    usual = {"model": model, "max_grad_norm": 0} | flags
    found, expected = (runs(method, **usual | more) for more in (IN_BACKWARD, {}))
    assert losses(found) == losses(expected)
    np.testing.assert_allclose(found.column("grad_norm"), expected.column("grad_norm"), rtol=1e-6)


@LONG
def test_a_run_clips_within_the_backward_pass(runs):
    whole = {"max_grad_norm": 0.1} | IN_BACKWARD
    found, free = runs("pretraining", **whole), runs("pretraining", **whole | {"max_grad_norm": 0})
    assert losses(found)[1] != losses(free)[1]
    assert found.column("grad_norm")[0] == free.column("grad_norm")[0]


@LONG
@pytest.mark.parametrize(
    "flags",
    [CHUNKS | RECOMPUTE, PAGED, PAGED | HALF, FACTORED | CHUNKS, FACTORED | HALF],
    ids=["on the card", "paged", "bfloat16", "factored", "factored, bfloat16"],
)
def test_a_continued_run_is_the_same_to_the_bit(runs, flags):
    whole, rest = runs("pretraining", **EIGHT_BITS | flags), runs.continued("pretraining", **EIGHT_BITS | flags)
    assert losses(rest) == losses(whole)[-len(losses(rest)) :]
    for name, values in whole.weights.items():
        assert (rest.weights[name] == values).all(), name


@LONG
def test_an_output_layer_updated_by_rows_learns_as_one_updated_whole(runs):
    rows, whole = runs("pretraining", **EIGHT_BITS | BY_ROWS), runs("pretraining", **EIGHT_BITS)
    assert rows.facts[0]["parts"] == 8 * STEPS_OF_RUN  # of 8 rows of 64
    np.testing.assert_allclose(losses(rows), losses(whole), rtol=2e-3)
    assert losses(rows)[0] == pytest.approx(losses(whole)[0], rel=1e-6)


@LONG
def test_three_hundred_steps_end_within_one_percent_of_adamw_in_float32(runs):
    """Of the evaluation's loss, with clipping by the past norm; both have learned."""
    usual = {
        "dataset_name_or_path": runs.material / "pairs",
        "max_steps": 300,
        "save_steps": 999,
        "learning_rate": 3e-3,
    }
    found, expected = (runs("finetuning", **usual | more) for more in (EIGHT_BITS, {}))
    first, last = expected.column("loss")[0], expected.evaluation["eval_loss"]
    assert last < 0.75 * first
    assert found.evaluation["eval_loss"] == pytest.approx(last, rel=0.01)
