"""Quantized weights are what their formats' definitions say, and a base of them computes with just these."""

import numpy as np
import pytest

from launch.families.registry import FAMILIES

RANKS = "tests.adapters.quantization_ranks"
NF4 = [
    -1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
]  # fmt: skip
FP4 = [sign * one for sign in (1, -1) for one in (0.0, 0.0052083333, 0.16666667, 0.25, 0.33333333, 0.5, 0.6666667, 1.0)]
SHAPE = (24, 20)
BLOCK = 32


@pytest.fixture(scope="module")
def weight() -> np.ndarray:
    """Some zeros, one output without weights, sizes that no block divides."""
    values = np.random.default_rng(0).normal(0, 0.02, SHAPE).astype("float32")
    values[:, 3] = values[5, :7] = 0
    return values


def nearest(values: np.ndarray, table) -> np.ndarray:
    table = np.array(table, "float32")
    return table[np.abs(values[..., None] - table).argmin(-1)]


def blocks(values: np.ndarray) -> np.ndarray:
    flat = values.flatten()
    return np.pad(flat, (0, -len(flat) % BLOCK)).reshape(-1, BLOCK)


@pytest.mark.parametrize(("algo", "largest", "bits"), [("weight_only_int8", 127, 8), ("weight_only_int4", 7, 4)])
def test_whole_numbers_times_a_scale_for_each_output(ranks, weight, algo, largest, bits):
    [found] = ranks(1, f"{RANKS}:there_and_back", weight.tolist(), {"algo": algo})
    scale = np.abs(weight).max(0) / np.float32(largest)
    expected = np.round(weight / np.where(scale == 0, 1, scale)) * scale
    np.testing.assert_allclose(found["weight"], expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found["again"], found["weight"], rtol=0, atol=1e-9)
    assert found["bits"] == bits + 32 / SHAPE[0]


@pytest.mark.parametrize(("algo", "table"), [("nf4", NF4), ("fp4", FP4)])
def test_the_nearest_of_sixteen_numbers_times_a_scale_for_each_block(ranks, weight, algo, table):
    [found] = ranks(1, f"{RANKS}:there_and_back", weight.tolist(), {"algo": algo, "block": BLOCK})
    rows = blocks(weight)
    scale = np.abs(rows).max(1, keepdims=True)
    expected = nearest(rows / scale, table) * scale
    np.testing.assert_allclose(found["weight"], expected.flatten()[: weight.size].reshape(SHAPE), rtol=0, atol=1e-8)
    np.testing.assert_allclose(found["again"], found["weight"], rtol=0, atol=1e-9)
    assert found["bits"] == 4 + 32 * len(rows) / weight.size


def test_scales_in_eight_bits(ranks, weight):
    """Less their mean, the nearest of 256 numbers on the dynamic scale times one scale for five of them."""
    format = {"algo": "nf4", "block": BLOCK, "double_quant": True, "double_block": 5}
    [found] = ranks(1, f"{RANKS}:there_and_back", weight.tolist(), format)
    rows = blocks(weight)
    scales = np.abs(rows).max(1, keepdims=True)
    offset = scales.mean()
    fives = (scales - offset).reshape(-1, 5)
    largest = np.abs(fives).max(1, keepdims=True)
    rounded = (nearest(fives / largest, dynamic()) * largest).reshape(-1, 1) + offset
    expected = nearest(rows / scales, NF4) * rounded
    np.testing.assert_allclose(found["weight"], expected.flatten()[: weight.size].reshape(SHAPE), rtol=0, atol=1e-8)
    assert found["bits"] == 4 + (8 * len(rows) + 32 * len(fives) + 32) / weight.size


@pytest.mark.parametrize("algo", ["weight_only_int8", "weight_only_int4", "nf4"])
def test_pieces_of_a_weight_give_what_the_whole_gives(ranks, weight, algo):
    """Of 8 rows, which blocks of 32 numbers do not divide into rows of 20; the last piece is shorter."""
    odd, format = weight[:21].tolist(), {"algo": algo, "block": BLOCK, "double_quant": True}
    whole, pieces = (ranks(1, f"{RANKS}:there_and_back", odd, format, *piece)[0] for piece in ([], [160]))
    assert pieces == whole | {"rounding": pytest.approx(whole["rounding"], rel=1e-5)}


@pytest.mark.parametrize("algo", ["weight_only_int8", "nf4"])
def test_the_share_of_rounding_is_told(ranks, weight, algo):
    [found] = ranks(1, f"{RANKS}:there_and_back", weight.tolist(), {"algo": algo, "block": BLOCK, "double_quant": True})
    expected = np.sqrt(((np.array(found["weight"]) - weight) ** 2).sum() / (weight.astype("float64") ** 2).sum())
    assert found["rounding"] == pytest.approx(expected, rel=1e-5)


def dynamic() -> list[float]:
    """bitsandbytes' signed map of 8 bits: means of neighbours on even steps from 0.1 to 1 for each power of ten."""
    numbers = [0.0, 1.0]
    for i in range(7):
        steps = np.linspace(0.1, 1, 2**i + 1)
        means = 10.0 ** (i - 6) * (steps[:-1] + steps[1:]) / 2
        numbers += [*means, *-means]
    assert len(numbers) == 256
    return numbers


@pytest.fixture(scope="module")
def beside_dense(ranks) -> dict:
    return ranks(1, f"{RANKS}:beside_dense", list(FAMILIES), {"algo": "nf4", "double_quant": True})[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_base_computes_with_what_its_weights_stand_for(beside_dense, name):
    """Losses and the adapters' gradients, to the bit; nothing else has a gradient, and no dense weight stays."""
    found = beside_dense[name]
    assert found["first_losses_equal"] and found["gradients_equal"] and found["weights_left"] == []
    assert found["trained"] == 2 * found["layers"]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_backward_pass_computes_weights_anew(beside_dense, name):
    """Once forward and once backward, but for those of the first layer whose inputs need no gradient."""
    found = beside_dense[name]
    assert 1.5 * found["layers"] < found["computed"] < 2 * found["layers"]


def test_codes_become_numbers_without_mixed_precision(ranks):
    """Once in each pass."""
    algos = ["weight_only_int8", "nf4", "llm.int8"]
    assert ranks(1, f"{RANKS}:under_amp", algos) == [dict.fromkeys(algos, [2, "AmpLevel.O0"])]


def test_random_weights_are_quantized_one_after_the_other(ranks):
    [found] = ranks(1, f"{RANKS}:random_model")
    for layer in ("q_proj", "down_proj", "embed_tokens", "lm_head"):
        assert found["deviations"][layer] == pytest.approx(0.02, rel=0.05), layer
    assert found["deviations"]["input_layernorm"] == 0
    assert found["now"] < 0.35 * found["linear"] < found["peak"] + found["linear"]
    assert found["peak"] < 0.75 * found["linear"], "the model was in memory whole"
    assert found["said"].startswith("base: 56 linear layers in weight_only_int8, 8.1")
    assert found["loss"] == pytest.approx(np.log(128) + 256 * 0.02**2 / 2, rel=0.03)
