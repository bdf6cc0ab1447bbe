"""The kernels of launch/switches are tried at the start of a run.

    fault = rope_fault(Heads(32, 8, 128), "bfloat16")

Each is computed forward and backward on small random inputs, by the function that the model will call, and compared
with the plain formula in NumPy: launch/switches/kernel_checks.py says why.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.distributed import fleet
from paddle.distributed.fleet.layers.mpu.mp_layers import InnerOverlapLinear
from paddle.distributed.fleet.utils.sequence_parallel_utils import SPInnerOverlapLinear
from paddle.incubate.nn.functional import fused_rotary_position_embedding

from launch.checkpoint.ranks import first_of_ranks
from launch.switches.kernel_checks import Heads, array_of, summary, with_gradients

# The largest error of a matrix relative to its norm: one rounding of each result gives 0.3 units of the last place, two
# of sums of products 0.5; a wrong position or sign gives 0.1 and more. float32 products on cards may be TF32.
TOLERANCE = {"float32": 2.0**-10, "bfloat16": 2.0**-7, "float16": 2.0**-10}
BATCH, LENGTH = 2, 67  # no multiple of a block
NAMES = ("result", "first input's gradient", "second input's gradient")


def fault_of(compute: Callable, inputs: Sequence[np.ndarray], upstream: np.ndarray, expected: Callable, dtype: str):
    """Return what is wrong with `compute` on this device; "" where nothing is.

    Args:
        compute: The function.
        inputs: Of compute, in float32.
        upstream: The gradient of its result, in float32; all are rounded to dtype.
        expected: The result and the gradients of the inputs, from the rounded arrays in float32.
        dtype: To compute in.
    """
    tensors = [_rounded(one, dtype) for one in (*inputs, upstream)]
    try:
        found = with_gradients(compute, tensors[:-1], tensors[-1])
    except Exception as error:  # Paddle raises many kinds for a kernel that refuses
        return f"it fails here: {summary(error)}"
    for name, mine, exact in zip(NAMES, found, expected(*map(array_of, tensors)), strict=False):
        error = np.linalg.norm(mine - exact) / np.linalg.norm(exact)
        if not error <= TOLERANCE[dtype]:  # also where it is not a number
            return f"its {name} is off by {error:.2g}, allowed {TOLERANCE[dtype]:.2g}"
    return ""


# ---- rotary embedding


def rope_fault(heads: Heads, dtype: str) -> str:
    """Return what is wrong with rotary embedding of one rank's queries and keys, as fault_of does.

    Positions are as the models hand them over: none, from 0, and from 0 again as in packed samples.
    """
    generator = np.random.default_rng(0)
    in_order = paddle.arange(LENGTH, dtype="int64").expand((BATCH, LENGTH))
    for positions in (None, in_order, in_order % 40):
        places = np.tile(np.arange(LENGTH), (BATCH, 1)) if positions is None else positions.numpy()
        # [1, LENGTH, 1, size], as LlamaRotaryEmbedding has them
        frequencies = 10000.0 ** (-np.arange(0, heads.size, 2) / heads.size)
        angles = np.outer(np.arange(LENGTH), np.concatenate([frequencies, frequencies]))[None, :, None]
        tables = [_rounded(table, dtype) for table in (np.cos(angles), np.sin(angles))]
        cosine, sine = (array_of(table)[0, :, 0][places][:, :, None] for table in tables)

        def turn(query, key, tables=tables, positions=positions):
            turned = fused_rope(query, key, tables, positions)[:2]
            return paddle.concat([one.flatten(2) for one in turned], axis=-1)

        def expected(query, key, upstream, cosine=cosine, sine=sine):
            turned = (one * cosine + _rotated(one) * sine for one in (query, key))
            yield np.concatenate([one.reshape(BATCH, LENGTH, -1) for one in turned], axis=-1)
            of_query, of_key = np.split(upstream, [heads.query * heads.size], axis=-1)
            for one, like in ((of_query, query), (of_key, key)):
                one = one.reshape(like.shape)
                yield one * cosine - _rotated(one * sine)

        counts = (heads.query, heads.key_value, heads.query + heads.key_value)
        query, key, upstream = (
            generator.standard_normal((BATCH, LENGTH, count, heads.size), dtype="float32") for count in counts
        )
        if fault := fault_of(turn, [query, key], upstream.reshape(BATCH, LENGTH, -1), expected, dtype):
            return fault
    return ""


def fused_rope(query, key, tables, positions):
    """Rotate query and key [batch, length, heads, size] as paddlenlp's LLaMA and Qwen2 do.

    tables: cosine and sine [1, length, 1, size]; positions: int64 [batch, length] or None for positions from 0.
    """
    cosine, sine = tables
    return fused_rotary_position_embedding(
        query, key, v=None, sin=sine, cos=cosine, position_ids=positions, use_neox_rotary_style=False
    )


def _rotated(x: np.ndarray) -> np.ndarray:
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([-second, first], axis=-1)


def _rounded(values: np.ndarray, dtype: str) -> paddle.Tensor:
    return paddle.to_tensor(values.astype("float32")).astype(getattr(paddle, dtype))


# ---- SwiGLU, which LLaMA and Qwen2 always call: `make certify` tries it


def swiglu_fault(dtype: str, width: int = 192) -> str:
    """Return what is wrong with paddle.nn.functional.swiglu, silu(x) y, as fault_of does."""
    x, y, upstream = np.random.default_rng(0).standard_normal((3, BATCH, LENGTH, width), dtype="float32")

    def expected(x, y, upstream):
        sigmoid = 1 / (1 + np.exp(-x))
        yield x * sigmoid * y
        yield upstream * y * sigmoid * (1 + x * (1 - sigmoid))
        yield upstream * x * sigmoid

    return fault_of(F.swiglu, [x, y], upstream, expected, dtype)


# ---- tensor parallel beside products


def overlap_fault(dtype: str, sequence_parallel: bool) -> str:
    """Return what is wrong with the product of a linear layer whose columns the ranks share, as fault_of does.

    All ranks call it together, and first agree that each can compute it alone: one whose kernel fails would leave the
    others waiting for its sum.
    """
    if fault := first_of_ranks(local_product_fault(dtype)):
        return fault
    group = fleet.get_hybrid_communicate_group().get_model_parallel_group()
    ranks, rank = group.nranks, group.rank
    generator = np.random.default_rng(0)
    rows, inputs, outputs = BATCH * 64 * ranks, 96, 160
    x = generator.standard_normal((rows, inputs), dtype="float32")
    weights = generator.standard_normal((ranks, inputs, outputs), dtype="float32")
    upstreams = generator.standard_normal((ranks, rows, outputs), dtype="float32")
    mine = slice(rows // ranks * rank, rows // ranks * (rank + 1)) if sequence_parallel else slice(None)

    def multiply(x, weight):
        if sequence_parallel:
            return SPInnerOverlapLinear.apply(x, weight, None, False, False, False, group)
        return InnerOverlapLinear.apply(x, weight, None, False, True, True, False, group)

    def expected(_x, weight, upstream):
        whole, *others = (array_of(_rounded(one, dtype)) for one in (x, *weights, *upstreams))
        yield whole @ weight
        yield np.sum([dy @ w.T for w, dy in zip(others[:ranks], others[ranks:], strict=True)], axis=0)[mine]
        yield whole.T @ upstream

    return fault_of(multiply, [x[mine], weights[rank]], upstreams[rank], expected, dtype)


def local_product_fault(dtype: str) -> str:
    """Return what is wrong with a linear layer's product on this rank alone, at the sizes of overlap_fault."""
    generator = np.random.default_rng(1)
    shapes = ((BATCH * 64, 96), (96, 160), (BATCH * 64, 160))
    x, weight, upstream = (generator.standard_normal(shape, dtype="float32") for shape in shapes)

    def expected(x, weight, upstream):
        yield x @ weight
        yield upstream @ weight.T
        yield x.T @ upstream

    return fault_of(paddle.matmul, [x, weight], upstream, expected, dtype)


def overlap(sequence_parallel: bool) -> None:
    """Let the linear layers that are made from now on overlap, as the words of --tensor_parallel_config would."""
    configs: Any = fleet.fleet._user_defined_strategy.hybrid_configs
    configs = configs["mp_configs"]
    if sequence_parallel:
        configs.sp_async_reduce_scatter = True
    else:
        configs.mp_async_allreduce = configs.mp_skip_c_identity = True
