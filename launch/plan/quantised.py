"""Frozen weights in 8 or 4 bits: what they take, and what using one takes (launch/adapters/quantized)."""

from dataclasses import dataclass

# What a number of a piece takes while it is computed from its code, in float32, the number itself among it.
SCRATCH = {"weight_only_int8": 8, "llm.int8": 8, "weight_only_int4": 12, "nf4": 16, "fp4": 16}
PIECE = 2**22  # numbers of a weight that are computed at once
FLOAT32 = 4


@dataclass(frozen=True)
class QuantisedBase:
    """algo: of --weight_quantize_algo. block, double_quant, double_block: of nf4 and fp4."""

    algo: str
    block: int = 64
    double_quant: bool = False
    double_block: int = 256

    @property
    def bits(self) -> int:
        """Of a code."""
        return 8 if self.algo in ("weight_only_int8", "llm.int8") else 4

    def nbytes(self, inputs: int, outputs: int) -> int:
        """Of a weight: its codes, and a float32 for each output or block; of doubly quantised scales a byte each, a
        float32 for each of their blocks, and one for their mean."""
        size = inputs * outputs
        codes = -(-size * self.bits // 8)
        if self.algo not in ("nf4", "fp4"):
            return codes + FLOAT32 * outputs
        scales = -(-size // self.block)
        if not self.double_quant:
            return codes + FLOAT32 * scales
        return codes + scales + FLOAT32 * -(-scales // self.double_block) + FLOAT32

    def scratch(self, size: int, item: int) -> int:
        """Bytes of a weight of so many numbers, in so many bytes each, while it is computed from its codes."""
        in_place = size <= PIECE and item == FLOAT32
        return SCRATCH[self.algo] * min(size, PIECE) + (0 if in_place else size * item)
