"""Weights in half precision on a CPU, for tests: operators widen their inputs to float32 and round their results.

Paddle's CPU build has no bfloat16 or float16 kernels for most operators. Dtypes, master weights, loss scaling and the
files of a checkpoint are as on a card; numbers are rounded where an operator ends.
"""

import paddle
from paddle import _C_ops, _legacy_C_ops

HALF = (paddle.bfloat16, paddle.float16)
OPERATORS = (
    "matmul linear softmax log_softmax silu swiglu cross_entropy_with_softmax multiply add subtract divide scale mean "
    "sum pow sqrt rsqrt exp square where maximum clip dropout add_n tile expand concat split split_with_num stack tril "
    "triu take_along_axis embedding c_embedding multiply_ add_ subtract_ scale_ squared_l2_norm"
).split()
OVERLOADED = "__mul__ __rmul__ __add__ __radd__ __sub__ __rsub__ __truediv__ __rtruediv__ __pow__".split()


def install() -> None:
    for name in OPERATORS:
        setattr(_C_ops, name, _widened(getattr(_C_ops, name), in_place=name.endswith("_")))
    for name in OVERLOADED:
        setattr(paddle.Tensor, name, _widened(getattr(paddle.Tensor, name)))
    paddle.Tensor.__matmul__ = lambda one, other: _C_ops.matmul(one, other, False, False)
    _C_ops.adamw_ = _adamw(_C_ops.adamw_)
    _legacy_C_ops.check_finite_and_unscale = _unscale(_legacy_C_ops.check_finite_and_unscale)


def _widened(operator, in_place: bool = False):
    def call(*args, **kwargs):
        halves = [one.dtype for one in _tensors(args) if one.dtype in HALF]
        if not halves:
            return operator(*args, **kwargs)
        result = operator(*_cast(args, HALF, paddle.float32), **kwargs)
        if in_place:
            return paddle.assign(result.astype(halves[0]), args[0])
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
