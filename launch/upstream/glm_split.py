"""GLM's safetensors files cannot be loaded under tensor parallel.

paddlenlp/transformers/conversion_utils.py, naive_merged_qkv_to_tensor_parallel_qkv: regroups a fused weight by heads
with NumPy, and gets an unread slice of the file when that is safetensors. Corrected: the slice is read first.
"""

import numpy as np
from paddlenlp.transformers import conversion_utils

STOCK = conversion_utils.naive_merged_qkv_to_tensor_parallel_qkv


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    conversion_utils.naive_merged_qkv_to_tensor_parallel_qkv = _regroup


def _regroup(weight, num_attention_heads: int) -> np.ndarray:
    return STOCK(weight if isinstance(weight, np.ndarray) else weight[:], num_attention_heads)
