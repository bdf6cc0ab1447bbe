"""Quantized weights are what their formats' definitions say, and a base of them computes with just these."""

import numpy as np
import pytest

from tests.families.test_families import groups

RANKS = "tests.adapters.quantization_ranks"
NF4 = [
    -1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
]  # fmt: skip
FP4 = [sign * one for sign in (1, -1) for one in (0.0, 0.0052083333, 0.16666667, 0.25, 0.33333333, 0.5, 0.6666667, 1.0)]
SHAPE = (24, 20)
BLOCK = 32
AMP = ["weight_only_int8", "nf4", "llm.int8"]


WHOLE = {"weight_only_int8": 127, "weight_only_int4": 7}  # and the largest number
TABLES = {"nf4": NF4, "fp4": FP4}
EIGHT_BIT_SCALES = {"algo": "nf4", "block": BLOCK, "double_quant": True, "double_block": 5}
IN_PIECES = [{"algo": algo, "block": BLOCK, "double_quant": True} for algo in (*WHOLE, "nf4")]


@pytest.fixture(scope="module")
def weight() -> np.ndarray:
    """Some zeros, one output without weights, sizes that no block divides."""
    values = np.random.default_rng(0).normal(0, 0.02, SHAPE).astype("float32")
    values[:, 3] = values[5, :7] = 0
    return values


@pytest.fixture(scope="module")
def observed(ranks, weight) -> dict:
    """Pieces of 8 rows, which blocks of 32 numbers do not divide into rows of 20; the last piece is shorter."""
    formats = [*({"algo": algo} for algo in WHOLE), *({"algo": algo, "block": BLOCK} for algo in TABLES)]
    values, odd = weight.tolist(), weight[:21].tolist()
    jobs = [[values, one] for one in [*formats, EIGHT_BIT_SCALES]]
    jobs += [[odd, one, piece] for one in IN_PIECES for piece in (None, 160)]
    return ranks(1, f"{RANKS}:observe", jobs, AMP)[0]


@pytest.fixture(scope="module")
def found(observed) -> dict[str, dict]:
    """By format; "pieces": pairs of whole weights and those in pieces."""
    *single, eight = observed["weights"][:5]
    pieces = observed["weights"][5:]
    by_name = dict(zip((*WHOLE, *TABLES), single, strict=True))
    return by_name | {"scales": eight, "pieces": list(zip(pieces[::2], pieces[1::2], strict=True))}


def nearest(values: np.ndarray, table) -> np.ndarray:
    table = np.array(table, "float32")
    return table[np.abs(values[..., None] - table).argmin(-1)]


def blocks(values: np.ndarray) -> np.ndarray:
    flat = values.flatten()
    return np.pad(flat, (0, -len(flat) % BLOCK)).reshape(-1, BLOCK)


def test_whole_numbers_times_a_scale_for_each_output(found, weight):
    for algo, largest in WHOLE.items():
        scale = np.abs(weight).max(0) / np.float32(largest)
        expected = np.round(weight / np.where(scale == 0, 1, scale)) * scale
        np.testing.assert_allclose(found[algo]["weight"], expected, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found[algo]["again"], found[algo]["weight"], rtol=0, atol=1e-9)
        assert found[algo]["bits"] == int(algo[-1]) + 32 / SHAPE[0]


def test_the_nearest_of_sixteen_numbers_times_a_scale_for_each_block(found, weight):
    rows = blocks(weight)
    scale = np.abs(rows).max(1, keepdims=True)
    for algo, table in TABLES.items():
        expected = (nearest(rows / scale, table) * scale).flatten()[: weight.size].reshape(SHAPE)
        np.testing.assert_allclose(found[algo]["weight"], expected, rtol=0, atol=1e-8)
        np.testing.assert_allclose(found[algo]["again"], found[algo]["weight"], rtol=0, atol=1e-9)
        assert found[algo]["bits"] == 4 + 32 * len(rows) / weight.size


def test_scales_in_eight_bits(found, weight):
    """Less their mean, the nearest of 256 numbers on the dynamic scale times one scale for five of them."""
    rows = blocks(weight)
    scales = np.abs(rows).max(1, keepdims=True)
    offset = scales.mean()
    fives = (scales - offset).reshape(-1, 5)
    largest = np.abs(fives).max(1, keepdims=True)
    rounded = (nearest(fives / largest, dynamic()) * largest).reshape(-1, 1) + offset
    expected = (nearest(rows / scales, NF4) * rounded).flatten()[: weight.size].reshape(SHAPE)
    np.testing.assert_allclose(found["scales"]["weight"], expected, rtol=0, atol=1e-8)
    assert found["scales"]["bits"] == 4 + (8 * len(rows) + 32 * len(fives) + 32) / weight.size


def test_pieces_of_a_weight_give_what_the_whole_gives_and_the_share_of_rounding_is_told(found, weight):
    odd = weight[:21].astype("float64")
    for whole, pieces in found["pieces"]:
        assert pieces == whole | {"rounding": pytest.approx(whole["rounding"], rel=1e-5)}
        expected = np.sqrt(((np.array(whole["weight"]) - odd) ** 2).sum() / (odd**2).sum())
        assert whole["rounding"] == pytest.approx(expected, rel=1e-5)


def dynamic() -> list[float]:
    """bitsandbytes' signed map of 8 bits: means of neighbours on even steps from 0.1 to 1 for each power of ten."""
    numbers = [0.0, 1.0]
    for i in range(7):
        steps = np.linspace(0.1, 1, 2**i + 1)
        means = 10.0 ** (i - 6) * (steps[:-1] + steps[1:]) / 2
        numbers += [*means, *-means]
    assert len(numbers) == 256
    return numbers


@groups
def test_a_base_computes_with_what_its_weights_stand_for(ranks, group):
    """Losses and the adapters' gradients, to the bit; nothing else has a gradient, and no dense weight stays. Weights
    are computed once forward and once backward, but for those of the first layer whose inputs need no gradient."""
    [beside_dense] = ranks(1, f"{RANKS}:beside_dense", group, {"algo": "nf4", "double_quant": True})
    for name, found in beside_dense.items():
        assert found["first_losses_equal"] and found["gradients_equal"] and found["weights_left"] == [], name
        assert found["trained"] == 2 * found["layers"], name
        assert 1.5 * found["layers"] < found["computed"] < 2 * found["layers"], name


def test_codes_become_numbers_without_mixed_precision(observed):
    """Once in each pass."""
    assert observed["amp"] == dict.fromkeys(AMP, [2, "AmpLevel.O0"])


def test_an_output_layer_in_parts_computes_with_what_its_codes_stand_for(observed):
    """Losses and gradients of the inputs, whole and in chunks; no dense weight stays."""
    assert set(observed["head"]) == {"whole", "in chunks", "in chunks, weighed"}
    for way, found in observed["head"].items():
        assert max(found["errors"]) < 1e-6 and found["parts"] == 4 and found["left"] == [], (way, found)


def test_random_weights_are_quantized_one_after_the_other(observed):
    found = observed["random"]
    for layer in ("q_proj", "down_proj", "embed_tokens", "lm_head"):
        assert found["deviations"][layer] == pytest.approx(0.02, rel=0.05), layer
    assert found["deviations"]["input_layernorm"] == 0
    assert found["now"] < 0.35 * found["linear"] < found["peak"] + found["linear"]
    assert found["peak"] < 0.75 * found["linear"], "the model was in memory whole"
    assert found["said"].startswith("base: 56 linear layers in weight_only_int8, 8.1")
    assert found["loss"] == pytest.approx(np.log(128) + 256 * 0.02**2 / 2, rel=0.03)
