"""What a program reaches of a card's rates: one constant for each kind of work, the same for all cards and models.

None is fitted to a single case. HALF_SIDE and NVLINK were chosen once, among four pairs of values, with the published
rows of pretraining on A100 in view (docs/plan.md).
"""

from dataclasses import dataclass

from launch.plan.hardware import Card

# Large half-precision products reach 271 of an A100's 312 TFLOP/s, 794 of an H100's 989.
# Source: S. Bekman, Machine Learning Engineering, "Maximum Achievable Matmul FLOPS".
MATMUL = 0.85
# A product's rate falls as its sides become shorter than many tiles of 128 to 256 (tiles are not full, nor is the last
# wave of them, and each starts with an empty pipeline): a side of n reaches n / (n + HALF_SIDE). Chosen on those rows.
HALF_SIDE = 400
HALF_SIDE_CPU = 32  # its tiles are vectors and caches
# FlashAttention-2 on an A100, causal, heads of 128: 160 to 190 of 312 TFLOP/s. Source: arXiv 2307.08691, figure 5.
ATTENTION = 0.5
# Streams over device memory: 1.6 to 1.7 of an A100's 2.04 TB/s. Source: BabelStream's published results for A100.
MEMORY = 0.8
# Collectives over NVLink: 230 of an A100's 300 GB/s for large messages (NVIDIA nccl-tests, bus bandwidth), less for
# those of a layer.
NVLINK = 0.65
# Pinned copies: 25 of 31.5 GB/s (NVIDIA's bandwidthTest, PCIe 4 x16). Pageable memory reaches half of that or less.
PCIE = 0.8
# Without NVLink or peer-to-peer access NCCL goes through host memory: each byte crosses PCIe twice.
THROUGH_HOST = 0.5
# Seconds until a collective begins: 10 to 30 microseconds (nccl-tests, small messages).
COLLECTIVE_START = 20e-6
# Seconds that Python and the framework need to start the operators of one layer, forward and backward, and to update
# its tensors; the card waits where its own work is shorter. Measured on a CPU with a model of 64 dimensions (Paddle
# 3.3.1, paddlenlp 3.0.0b4, AMD EPYC): 1.39 + 0.82 and 0.71 ms.
HOST_LAYER = 2.2e-3
HOST_UPDATE = 0.7e-3


@dataclass(frozen=True)
class Pace:
    """Seconds that a card needs for work of a kind. item: bytes of a number; dtype: of matrix products."""

    card: Card
    dtype: str
    item: int

    def multiply(self, rows: float, inputs: float, outputs: float) -> float:
        """A matrix product [rows, inputs] x [inputs, outputs]: arithmetic or memory, whichever takes longer."""
        share, half_side = MATMUL, HALF_SIDE if self.card.compute_capability else HALF_SIDE_CPU
        for side in (rows, inputs, outputs):
            share *= side / (side + half_side)
        arithmetic = 2 * rows * inputs * outputs / (self.card.flops(self.dtype) * share)
        return max(arithmetic, self.stream(self.item * (rows * inputs + inputs * outputs + rows * outputs)))

    def attend(self, flops: float) -> float:
        """The products of attention."""
        return flops / (self.card.flops(self.dtype) * ATTENTION)

    def stream(self, size: float) -> float:
        """Reading and writing so many bytes of device memory."""
        return size / (self.card.memory_bandwidth * MEMORY)

    def send(self, size: float, messages: float = 1) -> float:
        """So many bytes, in so many messages, between the cards of a machine, one direction."""
        rate = self.card.nvlink * NVLINK if self.card.nvlink else self.card.host_link * PCIE * THROUGH_HOST
        return size / rate + messages * COLLECTIVE_START

    def copy(self, size: float) -> float:
        """So many bytes to or from host memory."""
        return size / (self.card.host_link * PCIE)
