"""Frozen weights in 8 or 4 bits: what they take, and what using one takes (launch/adapters/quantization.py)."""

from dataclasses import asdict, dataclass

from launch.tape.autograd import FLOAT32

# Bytes an element of a piece takes while it is computed from its code: the float32 result, and of 4 bits the int32
# place of a pair in the table.
SCRATCH = {"weight_only_int8": 4, "llm.int8": 4, "weight_only_int4": 6, "nf4": 6, "fp4": 6}
# Bytes an element reads and writes while it is computed from its code (launch/adapters/quantization.py): the
# cast of the code (of 4 bits to the place of a pair, and the gather of the pair), and the product with its scale, in
# place.
MOVED = {8: 5 + 8, 4: 2.5 + 6 + 8}
PIECE = 2**22  # elements of a weight that are computed at once
PART = 2**26  # elements of an output layer's columns that are whole at once: about the largest weight of an 8B's layers
HEAD_WEIGHT = "lm_head.weight"  # [hidden, vocabulary]; other output layers are not quantized


def columns_of_part(inputs: int) -> int:
    """Return how many outputs of an output layer are whole at once: whole blocks, and what the kernels' tiles want."""
    return max(PART // inputs // 64, 1) * 64


@dataclass(frozen=True)
class Format:
    """A format of quantized weights.

    Attributes:
        algo: As --weight_quantize_algo names it, or "dynamic" for the scales of double_quant.
        block, double_quant, double_block: For nf4 and fp4.
        head: Whether the output layer is quantized, too.
    """

    algo: str
    block: int = 64
    double_quant: bool = False
    double_block: int = 256
    head: bool = False

    @property
    def identity(self) -> dict:
        """What a checkpoint compares: all fields, `head` only where it is set, which older checkpoints do not have."""
        return {name: value for name, value in asdict(self).items() if name != "head" or value}

    def takes(self, name: str, linear: bool) -> bool:
        """Return whether a tensor is quantized. linear: whether it is the weight of a layer's linear layer."""
        return linear or (self.head and name == HEAD_WEIGHT)

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return 8 if self.algo in ("weight_only_int8", "llm.int8") else 4

    def nbytes(self, inputs: int, outputs: int) -> int:
        """Return the bytes of a weight: its codes, and a float32 for each output or block.

        Doubly quantized scales take a byte each, a float32 for each of their blocks, and one for their mean.
        """
        size = inputs * outputs
        codes = -(-size * self.bits // 8)
        if self.algo not in ("nf4", "fp4"):
            return codes + FLOAT32 * outputs
        scales = -(-size // self.block)
        if not self.double_quant:
            return codes + FLOAT32 * scales
        return codes + scales + FLOAT32 * -(-scales // self.double_block) + FLOAT32

    def scratch(self, size: int, item: int) -> int:
        """Return the bytes of a weight of `size` elements of `item` bytes, while it is computed from its codes."""
        in_place = size <= PIECE and item == FLOAT32
        element = SCRATCH[self.algo]
        if self.algo in ("nf4", "fp4") and size % self.block and size <= PIECE:
            element = 2 * FLOAT32  # the last block is filled up in a copy
        return element * min(size, PIECE) + (0 if in_place else size * item)

    def moved(self, size: float, item: int) -> float:
        """Return the bytes moved while a weight of `size` elements of `item` bytes is computed from its codes.

        They are read and written; of llm.int8 it is the mean of the backward pass and the forward pass, which casts the
        codes alone.
        """
        cast = 0 if item == FLOAT32 else FLOAT32 + item
        into_weight = 2 * item if size > PIECE else 0
        element = MOVED[self.bits] + cast + into_weight
        return size * ((element + 1 + item) / 2 if self.algo == "llm.int8" else element)
