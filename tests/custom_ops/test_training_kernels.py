"""The CPU kernels of a training step and of answering, without Paddle: against float64, on each instruction set, for
any threads."""

import ctypes
import subprocess

import numpy as np
import pytest

from tests.custom_ops.kernels import INSTRUCTION_SETS, SOURCES

ERROR = 2e-6  # against float64, relative to the largest number
# batch, length, heads, head_size: one position; blocks of queries and tiles in part; two whole tiles and a part
SIZES = [(2, 1, 2, 16), (1, 47, 3, 80), (2, 130, 2, 64)]


class Kernels:
    def __init__(self, library: ctypes.CDLL, instruction_set: str):
        self.library, self._isa = library, INSTRUCTION_SETS.index(instruction_set)

    def attention(self, q, k, v, out_grad, bfloat16=False):
        """The result, and the gradients of q, k and v."""
        batch, length, heads, size = q.shape
        out, log_sums = np.empty_like(q), np.empty((batch, heads, length), np.float32)
        grads = [np.empty_like(q) for _ in range(3)]
        for grad in (None, out_grad):
            self._call(
                "attention", q, k, v, out, log_sums, grad, *grads, q.shape, ctypes.c_float(size**-0.5), int(bfloat16)
            )
        return [out, *grads]

    def packed_attention(self, row: "Row"):
        """The result; the row's groups get its keys and values."""
        out = np.empty_like(row.q)
        groups = [(ctypes.c_void_p * 2)(*(array.ctypes.data for array in arrays)) for arrays in (row.keys, row.values)]
        heads, size = row.k.shape[1:]
        sizes = (len(row.texts), heads, row.q.shape[1] // heads, size)
        arrays = (row.q, row.k, row.v, row.slopes, out, *groups, np.array(row.texts), sizes)
        self._call("packed_attention", *arrays, ctypes.c_float(size**-0.5))
        return out

    def rotary(self, x, cos, sin, back: bool):
        y = np.empty_like(x)
        self._call("rotary", x, cos, sin, y, x.shape, int(back))
        return y

    def swiglu(self, gate, up, y_grad):
        """The result, and the gradients of gate and up."""
        y, gate_grad, up_grad = (np.empty_like(gate) for _ in range(3))
        self._call("swiglu_forward", gate, up, y, ctypes.c_int64(gate.size))
        self._call("swiglu_gradient", gate, up, y_grad, gate_grad, up_grad, ctypes.c_int64(gate.size))
        return [y, gate_grad, up_grad]

    def _call(self, name: str, *words) -> None:
        """Arrays become pointers, a shape an array of int64."""
        words = [np.array(word, np.int64) if isinstance(word, tuple) else word for word in words]
        pointers = [word.ctypes.data_as(ctypes.c_void_p) if isinstance(word, np.ndarray) else word for word in words]
        getattr(self.library, name)(*pointers, self._isa)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ctypes.CDLL:
    file = tmp_path_factory.mktemp("kernels") / "libtraining.so"
    flags = ["-O3", "-std=c++17", "-fopenmp", "-shared", "-fPIC", "-Wall", "-Werror"]
    subprocess.run(["g++", *flags, str(SOURCES / "training_c.cc"), "-o", str(file)], check=True)
    return ctypes.CDLL(str(file))


@pytest.fixture(params=INSTRUCTION_SETS)
def kernels(library, request) -> Kernels:
    if INSTRUCTION_SETS.index(request.param) > library.training_best_isa():
        pytest.skip(f"this processor has no {request.param}")
    return Kernels(library, request.param)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def exact_attention(q, k, v, out_grad) -> list[np.ndarray]:
    """By the formula, in float64; as `Kernels.attention`."""
    q, k, v, out_grad = (array.astype(np.float64).transpose(0, 2, 1, 3) for array in (q, k, v, out_grad))
    scale, length = q.shape[-1] ** -0.5, q.shape[2]
    scores = np.where(np.tri(length, dtype=bool), q @ k.swapaxes(2, 3) * scale, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = weights @ v
    grads = out_grad @ v.swapaxes(2, 3)
    of_scores = scale * weights * (grads - (weights * grads).sum(-1, keepdims=True))
    by_key = of_scores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ out_grad
    return [array.transpose(0, 2, 1, 3) for array in (out, of_scores @ k, *by_key)]


def assert_near(found: list[np.ndarray], right: list[np.ndarray]) -> None:
    for one, exact in zip(found, right, strict=True):
        assert np.abs(one - exact).max() <= ERROR * max(1, np.abs(exact).max())


class Row:
    """Texts of two groups: new ones of one token and of two blocks of queries and a part, and others that already have
    tokens."""

    texts = ((0, 2, 128, 0, 1, 0), (1, 0, 32, 1, 1, 31), (0, 0, 128, 2, 101, 0), (1, 1, 32, 103, 5, 17),
             (0, 1, 128, 108, 49, 60), (0, 3, 128, 157, 1, 100))  # fmt: skip

    def __init__(self, heads: int, queries: int, size: int, alibi: bool):
        self.q = normal(158, heads * queries, size, seed=1)
        self.k, self.v = (normal(158, heads, size, seed=seed) for seed in (2, 3))
        self.keys, self.values = (
            [normal(4, heads, 128, size, seed=seed), normal(2, heads, 32, size, seed=seed + 1)] for seed in (4, 6)
        )
        self.slopes = (normal(heads * queries) / 8 if alibi else np.zeros(heads * queries)).astype(np.float32)

    def exact(self) -> np.ndarray:
        """By the formula, in float64."""
        heads, size = self.k.shape[1:]
        out = np.empty(self.q.shape)
        for group, place, _, start, count, before in self.texts:
            keys, values = (
                np.concatenate([kept[group][place][:, :before], new[start : start + count].swapaxes(0, 1)], axis=1)
                for kept, new in ((self.keys, self.k), (self.values, self.v))
            )
            for head in range(self.q.shape[1]):
                own = head * heads // self.q.shape[1]
                scores = self.q[start : start + count, head].astype(np.float64) @ keys[own].T * size**-0.5
                scores = scores + self.slopes[head] * np.arange(before + count)
                scores = np.where(np.tri(count, before + count, before, dtype=bool), scores, -np.inf)
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                weights /= weights.sum(-1, keepdims=True)
                out[start : start + count, head] = weights @ values[own]
        return out


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("heads, queries, size", [(2, 1, 64), (3, 3, 16), (8, 1, 48)])
def test_attention_of_many_texts(kernels, heads, queries, size, alibi):
    row = Row(heads, queries, size, alibi)
    before, right = [array.copy() for array in (*row.keys, *row.values)], row.exact()
    assert_near([kernels.packed_attention(row)], [right])
    for kept, now, new in zip(before, (*row.keys, *row.values), (row.k, row.k, row.v, row.v), strict=True):
        for _, place, capacity, start, count, past in row.texts:
            if capacity == kept.shape[2]:
                kept[place][:, past : past + count] = new[start : start + count].swapaxes(0, 1)
        assert (kept == now).all()  # the new ones in their places, and no other


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention(kernels, sizes):
    inputs = [normal(*sizes, seed=seed) for seed in range(4)]
    assert_near(kernels.attention(*inputs), exact_attention(*inputs))


@pytest.mark.parametrize("sizes", SIZES)
def test_attention_in_bfloat16(library, sizes):
    """A rounded factor moves a number by 2^-9 of it; of a gradient's two products one takes the other's result."""
    if not library.training_has_half_products():
        pytest.skip("this processor has no AVX512-bf16")
    inputs = [normal(*sizes, seed=seed) for seed in range(4)]
    found = Kernels(library, "avx512").attention(*inputs, bfloat16=True)
    for one, exact in zip(found, exact_attention(*inputs), strict=True):
        assert 2.0**-12 < np.abs(one - exact).max() / max(1, np.abs(exact).max()) < 2.0**-7


def test_attention_of_large_scores(kernels):
    """Scores of some thousands: without taking off the largest, their exponentials are no numbers."""
    inputs = [normal(1, 60, 1, 16, seed=seed) * 80 for seed in range(4)]
    found, right = kernels.attention(*inputs), exact_attention(*inputs)
    assert_near(found[:1], right[:1])
    assert all(np.isfinite(array).all() for array in found)


def test_nan_is_passed_on(kernels):
    """Or a run that has gone wrong would look like one that has not. What comes before it sees nothing of it."""
    inputs = [normal(1, 60, 1, 16, seed=seed) for seed in range(4)]
    inputs[1][0, 20, 0, 3] = np.nan
    out = kernels.attention(*inputs)[0]
    assert np.isnan(out[0, 20:]).all() and np.isfinite(out[0, :20]).all()
    gate = normal(50)
    gate[[3, 49]] = np.nan
    for array in kernels.swiglu(gate, gate * 0 + 1, gate):
        assert np.isnan(array).nonzero()[0].tolist() == [3, 49]


def test_rotary_embedding_and_swiglu(kernels):
    x, cos, sin = normal(2, 9, 3, 24), normal(9, 24, seed=1), normal(9, 24, seed=2)
    halves = np.concatenate([-x[..., 12:], x[..., :12]], axis=-1)
    assert_near([kernels.rotary(x, cos, sin, False)], [x * cos[:, None] + halves * sin[:, None]])
    grad = normal(2, 9, 3, 24, seed=3)
    along = (kernels.rotary(x, cos, sin, False) * grad).sum()
    assert (x * kernels.rotary(grad, cos, sin, True)).sum() == pytest.approx(along, rel=1e-5)  # the adjoint
    gate, up, grad = (normal(10_003, seed=seed) * 16 for seed in range(3))
    gate[:2] = -200, 200
    x = gate.astype(np.float64)
    sigmoid = 1 / (1 + np.exp(-x))
    right = [x * sigmoid * up, grad * up * sigmoid * (1 + x * (1 - sigmoid)), grad * x * sigmoid]
    assert_near(kernels.swiglu(gate, up, grad), right)


def test_any_number_of_threads_gives_the_same_bits(kernels):
    inputs = [normal(3, 100, 3, 64, seed=seed) for seed in range(4)]
    flat = [array.ravel() for array in inputs[:3]]
    results = []
    for threads in (1, 2, 5):
        kernels.library.training_set_threads(threads)
        packed = kernels.packed_attention(Row(2, 2, 32, True))
        results.append([array.tobytes() for array in (packed, *kernels.attention(*inputs), *kernels.swiglu(*flat))])
        results[-1] += [array.tobytes() for array in kernels.attention(*inputs, bfloat16=True)]
    assert results[0] == results[1] == results[2]
