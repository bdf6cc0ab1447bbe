"""MLPs and norms over slices of a micro batch's tokens: what they compute of a token depends on no other token.

A slice saves nothing for the backward pass, which computes the slice again before its gradients. The peak of a layer
then has the intermediates of one slice, whatever the length; whole are the MLP's input, its output, and the gradients
of both. Gradients of parameters are summed over the slices in float32, and arrive once, as without slices.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import paddle
from paddle.autograd import PyLayer
from paddle.base import core, framework
from paddle.distributed.fleet.layers.mpu.random import get_rng_state_tracker
from paddle.distributed.fleet.recompute.recompute import switch_rng_state_tracker

from launch.families.arithmetic import tokens_of_slice

Tensor = paddle.Tensor


def slice_sequence(model, flag: str) -> list[str]:
    """Let MLPs and norms of a model compute in slices, by --sequence_slices; lines for the user."""
    if flag == "off":
        return []
    blocks = [layer for layer in model.sublayers() if hasattr(layer, "mlp")]
    joined = {id(layer.post_attention_layernorm) for layer in blocks}
    norms = [one for one in model.sublayers() if type(one).__name__.endswith("RMSNorm") and id(one) not in joined]
    for norm in norms:
        norm.forward = partial(in_slices, norm.forward, [norm], flag)
    for layer in blocks:
        mlp, norm = layer.mlp, layer.post_attention_layernorm
        both = partial(_one_after_another, norm.forward, mlp.forward)
        mlp.forward, norm.forward = partial(in_slices, both, [norm, mlp], flag), _unchanged
    return [f"sequence_slices {flag}: {len(blocks)} MLPs and {len(blocks) + len(norms)} norms, a slice at a time"]


def _one_after_another(first: Callable, second: Callable, x: Tensor) -> Tensor:
    return second(first(x))


def _unchanged(x: Tensor) -> Tensor:
    """Stand for a norm that the MLP behind it computes."""
    return x


def in_slices(function: Callable, layers: list, flag: str, x: Tensor) -> Tensor:
    """Return function(x), a slice at a time. layers: those whose parameters it reads. x: [batch, length, ...]."""
    tokens = x.shape[0] * x.shape[1]
    size = tokens_of_slice(flag, tokens)
    if size >= tokens:
        return function(x)
    trained = [one for layer in layers for one in layer.parameters() if not one.stop_gradient]
    return Sliced.apply(x, function, size, *trained)


class Sliced(PyLayer):
    """function(x), which keeps the shape of x, over slices of `size` of its tokens."""

    @staticmethod
    def forward(ctx, x, function, size, *trained):
        """Compute slice by slice."""
        ctx.save_for_backward(x)
        ctx.function, ctx.size, ctx.trained, ctx.as_computed = function, size, trained, _as_computed_now()
        ctx.differentiates = not x.stop_gradient
        out = paddle.empty_like(x)
        rows, written = _rows(x), _rows(out)
        for part in _parts(rows, size):
            written[:, part] = function(rows[:, part])
        return out

    @staticmethod
    def backward(ctx, gradient):
        """Compute slice by slice again, and the gradients of each."""
        (x,) = ctx.saved_tensor()
        gradients = paddle.empty_like(x) if ctx.differentiates else None
        sums: list[Tensor] = []
        with ctx.as_computed(), paddle.enable_grad():
            for part in _parts(_rows(x), ctx.size):
                inputs = _rows(x)[:, part].detach()
                inputs.stop_gradient = not ctx.differentiates
                wanted = [*([inputs] if ctx.differentiates else []), *ctx.trained]
                found = paddle.grad(ctx.function(inputs), wanted, _rows(gradient)[:, part])
                with paddle.no_grad():
                    if gradients is not None:
                        _rows(gradients)[:, part] = found.pop(0)
                    found = [one.astype("float32") for one in found]
                    sums = [total.add_(one) for total, one in zip(sums, found, strict=True)] if sums else found
        sums = [total.astype(one.dtype) for total, one in zip(sums, ctx.trained, strict=True)]
        return (gradients, *sums)


def _rows(x: Tensor) -> Tensor:
    """Return [batch, length, ...] as [1, batch x length, ...], a view."""
    return x.reshape([1, -1, *x.shape[2:]])


def _parts(rows: Tensor, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, rows.shape[1], size))


def _as_computed_now() -> Callable:
    """Return a context in which random numbers and precision are those of this moment, as Paddle's recompute has it."""
    numbers = paddle.get_rng_state(), get_rng_state_tracker().get_states_tracker()
    numbers += np.random.get_state(), random.getstate()
    tracer = framework._dygraph_tracer()
    assert tracer is not None
    white, black = tracer._get_amp_op_list()
    precision = {
        "enable": tracer._amp_level != core.AmpLevel.O0,
        "custom_white_list": white,
        "custom_black_list": black,
        "level": "O2" if tracer._amp_level == core.AmpLevel.O2 else "O1",
        "dtype": "float16" if tracer._amp_dtype == "float16" else "bfloat16",
    }

    @contextmanager
    def as_computed():
        with switch_rng_state_tracker(*numbers), paddle.amp.auto_cast(**precision):
            yield

    return as_computed
