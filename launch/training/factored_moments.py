"""Adafactor, for `--optim adafactor`: a float32 a row and a column of a matrix in place of AdamW's 8 bytes an element.

The second moment of a matrix is the product of its rows' and its columns' (arXiv 1804.04235); a vector has all of its
own, and neither has a first moment. As the Trainer of transformers has it: --learning_rate counts as it is (no relative
steps, no scale of the parameter), the moments' decay at step t is 1 - t^-0.8, and an update whose root mean square is
above 1 is scaled down to it. Weight decay is AdamW's.

Weights in bfloat16 have no float32 copy and are rounded by chance (launch/training/narrow_moments.py). The gradient is
widened some rows at a time: once for its squares, once for the size of the update, and once for the update.
"""

from typing import Any

import numpy as np
import paddle
from paddle.base import core

from launch.families.arithmetic import rows_at_once
from launch.training.narrow_moments import AdamW16Bit

DECAY_EXPONENT, SMALLEST_SQUARE, LARGEST_UPDATE = -0.8, 1e-30, 1.0
STATES = {1: ("moment2",), 2: ("moment2_rows", "moment2_columns")}  # by the dimensions of a parameter


class Adafactor(AdamW16Bit):
    """AdamW's rate and decay, with factored second moments and no first ones."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs | {"multi_precision": False})

    def _add_moments_pows(self, p):
        for name, size in zip(STATES[len(p.shape)], p.shape, strict=True):
            self._add_accumulator(name, p, dtype=core.VarDesc.VarType.FP32, shape=[size])

    def _append_optimize_op(self, block, param_and_grad):
        """Update one parameter."""
        parameter, gradient = param_and_grad
        rows, *columns = [self._get_accumulator(name, parameter) for name in STATES[len(parameter.shape)]]
        count, row = parameter.shape[0], int(np.prod(parameter.shape[1:]))
        at_once = rows_at_once(count, row)
        parts = [(start, min(start + at_once, count)) for start in range(0, count, at_once)]
        kept = 1 - (self.step_number() + 1) ** DECAY_EXPONENT
        sums = paddle.zeros([row])
        for start, stop in parts:
            squares = gradient._slice(start, stop).astype("float32").square()
            if columns:
                sums.add_(squares.sum(axis=0))
                squares = squares.mean(axis=1)
            rows._slice(start, stop).lerp_(squares + SMALLEST_SQUARE, 1 - kept)
        factor = rows
        for moment in columns:
            moment.lerp_(sums / count + SMALLEST_SQUARE, 1 - kept)
            factor = rows / rows.mean()
        factors = factor.rsqrt(), *[moment.rsqrt() for moment in columns]
        squares = [_direction(gradient, factors, *part).square_().sum() for part in parts]
        size = (paddle.stack(squares).sum() / parameter.size).sqrt()
        rate = self._create_param_lr(param_and_grad)
        step = rate / (size / LARGEST_UPDATE).clip(min=1.0)
        decay: Any = self._weight_decay  # whose stub says None, too
        decays = self._apply_decay_param_fun is None or self._apply_decay_param_fun(parameter.name)
        for start, stop in parts:
            update = _direction(gradient, factors, start, stop).multiply_(step)
            weights = parameter._slice(start, stop)
            wide = weights.astype("float32")
            if decays:
                wide.multiply_(1 - rate * decay)
            wide.subtract_(update)
            del update
            if weights.dtype == paddle.bfloat16:
                self._round(wide)
                weights.copy_(wide.astype("bfloat16"), False)


def _direction(gradient: paddle.Tensor, factors: tuple, start: int, stop: int) -> paddle.Tensor:
    """Return float32: some rows of a gradient over the root of its second moment."""
    rows, *columns = factors
    wide = gradient._slice(start, stop).astype("float32")
    part = rows._slice(start, stop)
    return (wide * part.unsqueeze(1)).multiply_(columns[0]) if columns else wide * part
