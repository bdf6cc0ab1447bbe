"""Weights in half precision on a CPU, for tests: operators widen their inputs to float32 and round their results.

Paddle's CPU build has no bfloat16 or float16 kernels for most operators. Dtypes, master weights, loss scaling and the
files of a checkpoint are as on a card; numbers are rounded where an operator ends.
"""

import sys

import paddle
from paddle import _C_ops, _legacy_C_ops

from launch.rehearsal import process_group
from launch.upstream.module_view import ModuleView

HALF = (paddle.bfloat16, paddle.float16)
OPERATORS = (
    *("matmul", "linear", "softmax", "log_softmax", "silu", "swiglu", "cross_entropy_with_softmax", "multiply", "add"),
    *("subtract", "divide", "scale", "mean", "sum", "pow", "sqrt", "rsqrt", "exp", "square", "where", "maximum"),
    *("clip", "dropout", "add_n", "tile", "expand", "concat", "split", "split_with_num", "stack", "tril", "triu"),
    *("take_along_axis", "embedding", "c_embedding", "multiply_", "add_", "subtract_", "scale_"),
)
OVERLOADED = tuple(
    f"__{name}__" for name in ("mul", "rmul", "add", "radd", "sub", "rsub", "truediv", "rtruediv", "pow")
)


def install() -> None:
    for name in OPERATORS:
        setattr(_C_ops, name, _widened(getattr(_C_ops, name), in_place=name.endswith("_")))
    for name in OVERLOADED:
        setattr(paddle.Tensor, name, _widened(getattr(paddle.Tensor, name)))
    paddle.Tensor.__matmul__ = lambda one, other: _C_ops.matmul(one, other, False, False)
    _C_ops.squared_l2_norm = _squared_l2_norm(_C_ops.squared_l2_norm)
    _C_ops.adamw_ = _adamw(_C_ops.adamw_)
    _legacy_C_ops.check_finite_and_unscale = _unscale(_legacy_C_ops.check_finite_and_unscale)
    process_group._refusing_float16 = _summing_in_float32
    _decorate_as_on_a_card()


class _Card:
    def is_gpu_place(self) -> bool:
        return True

    def is_xpu_place(self) -> bool:
        return False

    is_custom_place = is_xpu_place


def _decorate_as_on_a_card() -> None:
    """paddle.amp.decorate gives layers their dtype, and the optimizer its master weights, on accelerators alone."""
    module = sys.modules["paddle.amp.auto_cast"]  # paddle.amp.auto_cast is the function
    tracer = module._dygraph_tracer
    module._dygraph_tracer = lambda: ModuleView(tracer(), _expected_place=_Card())
    module._is_gpu_float16_supported = module._is_gpu_bfloat16_supported = lambda: True


def _widened(operator, in_place: bool = False):
    def call(*args, **kwargs):
        halves = [one.dtype for one in _tensors(args) if one.dtype in HALF]
        if not halves:
            return operator(*args, **kwargs)
        result = operator(*_cast(args, HALF, paddle.float32), **kwargs)
        if in_place:
            return paddle.assign(result.astype(args[0].dtype), args[0]) if args[0].dtype in HALF else result
        return _cast(result, (paddle.float32,), halves[0])

    return call


def _tensors(value) -> list[paddle.Tensor]:
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in _tensors(item)]
    return [value] if isinstance(value, paddle.Tensor) else []


def _cast(value, found: tuple, wanted):
    """The tensors of these dtypes in another one, in lists, too."""
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(one, found, wanted) for one in value)
    return value.astype(wanted) if isinstance(value, paddle.Tensor) and value.dtype in found else value


def _squared_l2_norm(operator):
    """Squares and their sum are rounded, as on a card (paddle/phi/kernels/funcs/squared_l2_norm.h)."""

    def squared_l2_norm(x):
        return paddle.square(x).sum().reshape([1]) if x.dtype in HALF else operator(x)

    return squared_l2_norm


def _summing_in_float32(reduction):
    """gloo sums float16 into inf."""

    def reduce(group, tensor, *args):
        if tensor.dtype not in HALF:
            return reduction(group, tensor, *args)
        wide = tensor.astype("float32")
        process_group.finish(reduction(group, wide, *args))
        process_group.write(tensor, wide.astype(tensor.dtype))
        return process_group.Done()

    return reduce


def _adamw(operator):
    """The update of the master weight, in float32, rounded into the parameter."""

    def adamw_(parameter, gradient, rate, m1, m2, m2_max, b1, b2, master, *rest):
        if parameter.dtype not in HALF:
            return operator(parameter, gradient, rate, m1, m2, m2_max, b1, b2, master, *rest)
        rest = list(rest)
        rest[9] = False  # find_master: the master weight is the parameter here
        operator(master, gradient.astype("float32"), rate, m1, m2, m2_max, b1, b2, None, *rest)
        paddle.assign(master.astype(parameter.dtype), parameter)
        return [None] * 7  # what it returns in place of its arguments; nobody uses it

    return adamw_


def _unscale(operator):
    """Gradients divided by the loss scale, in place."""

    def check_finite_and_unscale(gradients, scale, results, found):
        widened = _cast(gradients, HALF, paddle.float32)
        operator(widened, scale, widened, found)
        for values, result in zip(widened, results, strict=True):
            paddle.assign(values.astype(result.dtype), result)

    return check_finite_and_unscale
