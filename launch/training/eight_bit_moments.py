"""AdamW with moments in 8 bits, for `--optim adamw_8bit`: 2.03 bytes a parameter in place of 8, or 12 with O2.

256 neighboring elements share a float32 scale, their largest magnitude (arXiv 2110.02861, section 2.1). A magnitude as
a share of its scale plus FLOOR is a float whose upper bits are the code: 3 bits of its mantissa for the first moment,
with the sign beside them, and 4 for the root of the second. So the smallest codes are evenly spaced, 0 stays 0, and all
others are within a part of their own size. A second moment above 0 never becomes 0: a step divides by its root.

The arithmetic is Paddle's own float32 kernel, some elements of a parameter at a time. Codes are rounded up or down by
chance so that the mean is right, and so are weights in bfloat16, of which there is no float32 copy
(launch/training/narrow_moments.py has the reason, and where the chance comes from).

With `--offload_optim 1` codes and scales are in host memory. Those of some elements are on the device while these are
updated; the next ones are on their way meanwhile.
"""

from typing import Any

import numpy as np
import paddle
from paddle.base import core

from launch.families.arithmetic import MOMENT_BLOCK, MOMENT_ELEMENTS, NOISE_OFFSETS
from launch.offload.host_memory import HostMemory, KeptTensors, Lane
from launch.training.narrow_moments import AdamW16Bit, adamw, noise, reinterpreted

FLOOR_EXPONENT = -15
FLOOR = 2.0**FLOOR_EXPONENT
FIRST_BITS, SECOND_BITS = 3, 4  # of the mantissa
FLOAT_BITS, BIAS, CHANCE_BITS = 23, 127, 16  # of a float32's mantissa and exponent, and of the noise


class AdamW8Bit(AdamW16Bit):
    """AdamW with moments in 8 bits and no master weights.

    Attributes:
        first_element: Of the parameter, that the next gradient belongs to. A gradient of some elements is one of a
            whole number of blocks, and those of a parameter come in their order.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs | {"multi_precision": False})
        self.first_element = 0
        self._lane: Lane | None = None
        self._tables: dict[int, paddle.Tensor] = {}

    def keep_in(self, host: HostMemory) -> None:
        """Keep the states that will be created in host memory."""
        self._accumulators.default_factory = lambda: KeptTensors(host)
        self._lane = Lane()

    def _add_moments_pows(self, p):
        blocks = -(-p.size // MOMENT_BLOCK)
        for name, dtype in zip(self._state_names()[::2], ("INT8", "UINT8"), strict=True):
            self._add_accumulator(name, p, dtype=getattr(core.VarDesc.VarType, dtype), shape=[p.size])
            self._add_accumulator(f"{name}_scale", p, dtype=core.VarDesc.VarType.FP32, shape=[blocks])
        self._add_powers(p)

    def _state_names(self) -> list[str]:
        """Return the names of codes and scales, those of the first moment first."""
        names = (self._moment1_acc_str, self._moment2_acc_str)
        return [name for moment in names for name in (moment, f"{moment}_scale")]

    def _append_optimize_op(self, block, param_and_grad):
        """Update one parameter, or the elements that the gradient has."""
        parameter, gradient = param_and_grad
        states = [self._get_accumulator(name, parameter) for name in self._state_names()]
        powers = [self._get_accumulator(name, parameter) for name in (self._beta1_pow_acc_str, self._beta2_pow_acc_str)]
        rate = self._create_param_lr(param_and_grad)
        decays = self._apply_decay_param_fun is None or self._apply_decay_param_fun(parameter.name)
        weights, gradients = _flat(parameter), _flat(gradient)
        begin, size = self.first_element, gradient.size
        chances = [self._flips() for _ in range(3)]
        after, ahead = powers, self._fetch(states, begin, min(size, MOMENT_ELEMENTS))
        for start in range(0, size, MOMENT_ELEMENTS):
            stop = min(start + MOMENT_ELEMENTS, size)
            here = ahead
            if stop < size:
                ahead = self._fetch(states, begin + stop, min(size - stop, MOMENT_ELEMENTS))
            after = [power.clone() for power in powers]  # which the kernel multiplies by beta
            rows = weights._slice(begin + start, begin + stop), gradients._slice(start, stop)
            self._update_elements(*rows, self._arrived(here), rate, after, decays, chances)
            if self._lane is not None:
                for place, copy, _ in here:
                    self._lane.copy(place, copy)
            chances = [(chance + 8191) % NOISE_OFFSETS for chance in chances]
        if begin + size == parameter.size:
            for power, value in zip(powers, after, strict=True):
                power.copy_(value, True)

    def _update_elements(self, weights, gradients, states: list, rate, powers: list, decays: bool, chances) -> None:
        """Update some elements. states: codes and scales of the first moment, then of the second, written in place."""
        codes, scales, root_codes, root_scales = states
        wide, first = weights.astype("float32"), self._decode(codes, scales, FIRST_BITS)
        second = self._decode(root_codes, root_scales, SECOND_BITS)
        second.multiply_(second)
        adamw(self, [wide, gradients.astype("float32"), None, first, second], rate, powers, decays)
        if weights.dtype == paddle.bfloat16:
            bits = self._rounded(wide, FLOAT_BITS - 7, chances[2])
            bits.bitwise_and_(paddle.full([1], -(2**16), "int32"))
            weights.copy_(wide.astype("bfloat16"), False)
            del bits
        del wide
        self._encode(first, codes, scales, FIRST_BITS, chances[0])
        del first
        self._encode(second.sqrt_(), root_codes, root_scales, SECOND_BITS, chances[1])

    def _decode(self, codes: paddle.Tensor, scales: paddle.Tensor, bits: int) -> paddle.Tensor:
        """Return the float32 values of codes."""
        signed = codes.dtype == paddle.int8
        if bits not in self._tables:  # the value of each of 256 codes as a share of the scale, the lowest code first
            numbers = np.arange(256, dtype=np.int32) - (128 if signed else 0)
            floats = ((np.abs(numbers) + _base(bits)) << (FLOAT_BITS - bits)).view(np.float32)
            floats = (floats - np.float32(FLOOR)) * np.sign(numbers).astype(np.float32)
            self._tables[bits] = paddle.to_tensor(floats)
        places = codes.cast("int32")
        if signed:
            places.add_(paddle.full([1], 128, "int32"))
        shares = _in_blocks(paddle.gather(self._tables[bits], places))
        return shares.multiply_(scales.unsqueeze(1)).reshape_([-1])._slice(0, codes.shape[0])

    def _encode(self, values: paddle.Tensor, codes: Any, scales: Any, bits: int, chance: int) -> None:
        """Write values as codes and scales."""
        size, signed = values.shape[0], codes.dtype == paddle.int8
        shares = _in_blocks(values.abs() if signed else values)
        largest = shares.max(axis=1, keepdim=True)
        shares = shares.divide(paddle.where(largest > 0, largest, paddle.ones_like(largest))).add_(
            paddle.full([1], FLOOR, "float32")
        )
        bits_of_shares = self._rounded(shares.reshape_([-1])._slice(0, size), FLOAT_BITS - bits, chance)
        places = paddle.bitwise_right_shift(bits_of_shares, paddle.full([1], FLOAT_BITS - bits, "int32"))
        del shares, bits_of_shares
        places.subtract_(paddle.full([1], _base(bits), "int32"))
        signs = values.sign().astype("int32")
        places = places.multiply_(signs) if signed else paddle.maximum(places, signs)
        codes.copy_(places.cast(codes.dtype), False)
        scales.copy_(largest.reshape_([-1]), False)

    def _rounded(self, values: paddle.Tensor, dropped: int, chance: int) -> paddle.Tensor:
        """Return the bits of float32 values, in the same memory, once noise has been added to those to be dropped."""
        bits = reinterpreted(values, "int32")
        if self._noise is None or self._noise.shape[0] < values.shape[0] + NOISE_OFFSETS:
            self._noise = noise(values.shape[0] + NOISE_OFFSETS)
        random = self._noise._slice(chance, chance + values.shape[0])
        if dropped > CHANCE_BITS:
            random = random * 2 ** (dropped - CHANCE_BITS)
        return bits.add_(random)

    # ---- states in host memory

    def _fetch(self, states: list, start: int, size: int) -> list[tuple]:
        """Begin to fetch the states of `size` elements; returns (their place, where they are updated, event)."""
        blocks = start // MOMENT_BLOCK, -(-(start + size) // MOMENT_BLOCK)
        places = [states[0]._slice(start, start + size), states[1]._slice(*blocks)]
        places += [states[2]._slice(start, start + size), states[3]._slice(*blocks)]
        if self._lane is None:
            return [(place, place, None) for place in places]
        copies = [paddle.empty(place.shape, place.dtype) for place in places]
        return [(place, copy, self._lane.copy(copy, place)) for place, copy in zip(places, copies, strict=True)]

    def _arrived(self, fetched: list[tuple]) -> list[paddle.Tensor]:
        if self._lane is not None:
            for _, _, event in fetched:
                self._lane.wait(event)
        return [copy for _, copy, _ in fetched]


def _base(bits: int) -> int:
    """Return the upper bits of FLOOR, whose code is 0."""
    return (BIAS + FLOOR_EXPONENT) << bits


def _flat(tensor: paddle.Tensor) -> paddle.Tensor:
    """Return the elements of a tensor in the same memory: reshaping a detached tensor would reshape the tensor, too."""
    return tensor._slice(0, tensor.shape[0]).reshape_([-1])


def _in_blocks(values: paddle.Tensor) -> paddle.Tensor:
    """Return values as rows of a block; the last is filled up with zeros."""
    if short := -values.shape[0] % MOMENT_BLOCK:
        values = paddle.concat([values, paddle.zeros([short], values.dtype)])
    return values.reshape([-1, MOMENT_BLOCK])
