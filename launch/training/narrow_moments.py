"""The moments of `--optim adamw_16bit_moment` stand still.

Upstream: AdamW_16Bit in paddlenlp/utils/optimizer.py, in its version without a Triton kernel, which paddlenlp's package
does not have. It squares the gradient in 16 bits, rounds both moments to the nearest number of 16 bits, and only where
there are master weights, in the parameter's dtype.
Without the correction: with beta2 0.999 the second moment moves by less than half of a unit in its last place, so it
stays where it was and never shrinks. In float16, squares of gradients below 2e-4 are 0. A float32 run saves nothing.
Here: the arithmetic is that of Paddle's own float32 kernel. Moments are widened for it, some rows of a parameter at a
time, and stored in bfloat16 in every run, rounded up or down by chance so that the mean is right (stochastic rounding,
as in arXiv 2010.06192, section 3). The chance comes from the number of the step and the place of the parameter: a run
that is continued rounds as if it had not stopped. It draws nothing from Paddle's random numbers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddlenlp.utils
from paddle import _C_ops
from paddle.base import core
from paddle.optimizer import AdamW

from launch.families.arithmetic import rows_at_once

STRIDED = "FLAGS_use_stride_kernel"


def correct(optimizer: "type[AdamW16Bit] | None" = None) -> None:
    """Replace upstream's optimizer with 16-bit moments by ours, or by another."""
    paddlenlp.utils.AdamW_16Bit = optimizer or AdamW16Bit


class AdamW16Bit(AdamW):
    """AdamW with moments in bfloat16.

    Attributes:
        step_number: Of the step that is being made, which a run that is continued counts on from its checkpoint.
    """

    step_number: Callable[[], int]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._noise: paddle.Tensor | None = None
        self._last_step, self._updates = -1, 0

    def _add_moments_pows(self, p):
        for name in (self._moment1_acc_str, self._moment2_acc_str):
            self._add_accumulator(name, p, dtype=core.VarDesc.VarType.BF16)
        self._add_powers(p)

    def _add_powers(self, p):
        for name, beta in ((self._beta1_pow_acc_str, self._beta1), (self._beta2_pow_acc_str, self._beta2)):
            self._add_accumulator(
                name, p, dtype=core.VarDesc.VarType.FP32, fill_value=float(beta), shape=[1], device="cpu"
            )

    def _append_optimize_op(self, block, param_and_grad):
        """Update one parameter."""
        if isinstance(param_and_grad, dict):
            param_and_grad = self._update_param_group(param_and_grad)
        parameter, gradient = param_and_grad
        has_master = self._multi_precision and self._is_dtype_fp16_or_bf16(parameter.dtype)
        master = self._master_weights[parameter.name] if has_master else None
        states = [
            self._get_accumulator_master(name, parameter) for name in (self._moment1_acc_str, self._moment2_acc_str)
        ]
        powers = [
            self._get_accumulator_master(name, parameter) for name in (self._beta1_pow_acc_str, self._beta2_pow_acc_str)
        ]
        before = [power.clone() for power in powers]
        rate = self._create_param_lr(param_and_grad)
        decays = self._apply_decay_param_fun is None or self._apply_decay_param_fun(parameter.name)
        shape = parameter.shape
        at_once = rows_at_once(shape[0], int(np.prod(shape[1:])))
        for start in range(0, shape[0], at_once):
            stop = min(start + at_once, shape[0])
            for power, value in zip(powers, before, strict=True):
                power.copy_(value, True)  # which the kernel multiplies by beta each time
            rows = [None if one is None else one._slice(start, stop) for one in (parameter, gradient, master, *states)]
            self._update(rows, rate, powers, decays)

    def _update(self, rows: list, rate, powers: list, decays: bool) -> None:
        *weights, moment1, moment2 = rows
        moments = moment1, moment2
        first, second = [moment.cast("float32") for moment in moments]
        adamw(self, [*weights, first, second], rate, powers, decays)
        for moment, values in zip(moments, (first, second), strict=True):
            self._round(values)
            moment.copy_(values.cast("bfloat16"), False)

    def _round(self, values: paddle.Tensor) -> None:
        """Round float32 values to bfloat16, which is their upper 16 bits, in place.

        A random number of 16 bits is added, then the lower bits are cut off. 0 stays 0.
        """
        bits = reinterpreted(values, "int32").reshape_([-1])
        if self._noise is None or self._noise.shape[0] < bits.shape[0]:
            self._noise = noise(bits.shape[0])
        bits.add_(paddle.bitwise_xor(self._noise._slice(0, bits.shape[0]), paddle.full([1], self._flips(), "int32")))
        bits.bitwise_and_(paddle.full([1], -(2**16), "int32"))

    def _flips(self) -> int:
        """Return which of the noise's 16 bits are flipped.

        It is a new number for each tensor in each step, so that an element meets every rounding equally often.
        """
        step = self.step_number()
        self._updates = self._updates + 1 if step == self._last_step else 0
        self._last_step = step
        return int(np.random.SeedSequence((step, self._updates)).generate_state(1, np.uint32)[0] >> 16)


def adamw(optimizer: AdamW, tensors: list, rate, powers: list, decays: bool) -> None:
    """Make a step by Paddle's kernel. tensors: parameter, gradient, master weight or None, both moments in float32."""
    parameter, gradient, master, first, second = tensors
    update: Any = _C_ops.adamw_  # whose stub takes no None
    update(
        parameter,
        gradient,
        rate,
        first,
        second,
        None,  # the largest second moment so far, of AMSGrad
        powers[0],
        powers[1],
        master,
        None,  # no skipped update
        optimizer._beta1,
        optimizer._beta2,
        optimizer._epsilon,
        1.0,  # of the learning rate
        optimizer._weight_decay,
        decays,
        False,  # not lazy
        1000,  # rows from which sparse gradients are split over threads
        master is not None,
        False,  # as it is everywhere
        False,  # no AMSGrad
    )


def noise(elements: int) -> paddle.Tensor:
    """Return int32 [elements], uniform from 0 to 2**16 - 1; the first ones are the same for every length."""
    return paddle.to_tensor(np.random.Generator(np.random.PCG64(0)).integers(0, 2**16, elements, np.int32))


def reinterpreted(values: paddle.Tensor, dtype: Any) -> paddle.Tensor:
    """Return the bits of values as another dtype of the same size, in the same memory.

    --cpu_fast switches off the kernels that view is of.
    """
    strided = paddle.get_flags(STRIDED)[STRIDED]
    paddle.set_flags({STRIDED: True})
    bits = values.view(dtype)
    paddle.set_flags({STRIDED: strided})
    return bits
