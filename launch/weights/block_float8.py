"""Published weights that are quantized: FP8 with a scale a block is read, every other method is refused by its name.

DeepSeek and Qwen publish `-FP8` models: X.weight in F8_E4M3 [outputs, inputs] and X.weight_scale_inv, a factor for each
block of 128 x 128 values. Their product has 4 significant bits of the one times at most 24 of the other: in float32 it
is what transformers computes with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from launch.checkpoint.stored_tensor import StoredTensor, convert
from launch.errors import UserError

CODES, SCALE = "float8_e4m3fn", "_scale_inv"


# The values of the codes: a sign, 4 bits of exponent around 7, 3 bits behind the point; no infinity.
EXPONENTS, RESTS = np.divmod(np.arange(128), 8)
SIZES = (RESTS / 8 + (EXPONENTS > 0)) * 2.0 ** (np.maximum(EXPONENTS, 1) - 7)
SIZES[127] = np.nan
VALUES = np.concatenate([SIZES, -SIZES]).astype(np.float32)


@dataclass(frozen=True)
class BlockFloat8(StoredTensor):
    """A matrix of codes and its scales, opened as float32."""

    codes: StoredTensor
    scales: StoredTensor
    block: tuple[int, int]

    def open(self) -> np.ndarray:
        """Return the whole matrix in float32."""
        codes, scales = self.codes.open(), convert(self.scales.open(), self.scales.dtype, "float32")
        (rows, columns), found = self.block, np.empty(self.shape, np.float32)
        for number, start in enumerate(range(0, len(codes), rows)):
            factors = np.repeat(scales[number], columns)[: self.shape[1]]
            found[start : start + rows] = VALUES[codes[start : start + rows]] * factors
        return found


def block_size(theirs: dict, path: Path | str) -> tuple[int, int] | None:
    """Return the blocks of a config.json's FP8 weights; None where the weights are not quantized.

    Raises:
        UserError: With its name, for another method.
    """
    config = theirs.get("quantization_config") or theirs.get("compression_config")
    if not config:
        return None
    values = config if isinstance(config, dict) else {}
    bits = [name for name in ("load_in_4bit", "load_in_8bit") if values.get(name)]
    method = values.get("quant_method") or ("bitsandbytes" if bits else "unknown")
    block = values.get("weight_block_size")
    is_dynamic = method == "fp8" and values.get("activation_scheme", "dynamic") == "dynamic"
    if (
        is_dynamic
        and isinstance(block, list)
        and len(block) == 2
        and all(type(one) is int and one > 0 for one in block)
    ):
        return block[0], block[1]
    raise UserError(
        f"{path}: quantization_config: found quant_method {method!r}, allowed: 'fp8' with weight_block_size and "
        "dynamic activations. Take the model that this one was made from; --weight_quantize_algo quantizes it here."
    )


def unpacked(stored: Mapping[str, StoredTensor], block: tuple[int, int]) -> dict[str, StoredTensor]:
    """Return the tensors of a model, each matrix in FP8 with its scales as one.

    Raises:
        UserError: If the scales of a matrix are missing, or not one a block.
    """
    found = {}
    for name, tensor in stored.items():
        if tensor.dtype != CODES:
            if not name.endswith(SCALE):
                found[name] = tensor
            continue
        scales = stored.get(f"{name}{SCALE}")
        blocks = tuple(-(-size // length) for size, length in zip(tensor.shape, block, strict=False))
        if len(tensor.shape) != 2 or scales is None or scales.shape != blocks:
            shape = list(scales.shape) if scales else "none"
            raise UserError(f"{tensor.path}: {name}{SCALE}: found {shape}, allowed: {list(blocks)}, one a block.")
        found[name] = BlockFloat8(tensor.path, "float32", tensor.shape, tensor.offset, tensor, scales, block)
    return found
