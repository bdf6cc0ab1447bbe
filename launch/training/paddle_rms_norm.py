"""Paddle's own RMSNorm operator for cards, in the place of the module fused_ln where that cannot be used.

paddle.nn.functional.rms_norm of Paddle 3.3.1 has kernels for cards, forward and backward, and none for CPUs
(paddle/phi/kernels/gpu/rms_norm_cuda_kernel.h). It wants x and weight in one dtype and keeps sums in float32. Offsets
there are 32 bits: more than 2^32 numbers at once would be wrong.
"""

import sys
from types import ModuleType

import paddle


def fused_rms_norm(x, weight, epsilon=1e-6):
    """As fused_ln's: y [..., h] in the weight's dtype and 1 / rms in float32; x [..., h], weight [h]."""
    if x.dtype != weight.dtype:
        x = x.astype(weight.dtype)
    with paddle.amp.auto_cast(False):  # or it would choose the dtype
        return paddle.nn.functional.rms_norm(x, [x.shape[-1]], weight, epsilon)


def put_in_place() -> None:
    """Let paddlenlp's `import fused_ln` find it, in this process."""
    module = ModuleType("fused_ln", __doc__)
    module.fused_rms_norm = fused_rms_norm
    sys.modules["fused_ln"] = module
