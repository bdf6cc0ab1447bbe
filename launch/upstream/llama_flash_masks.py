"""LLaMA, Qwen2, Qwen2-MoE and Mixtral with flash attention lose masks: of padding, packed samples, a prefix.

paddlenlp/transformers/llama/modeling.py, qwen2, qwen2_moe and mixtral, is_casual_mask: also calls a mask
causal that has more columns than rows, as with a prefix or with cached keys, and drops it. llama/fusion_ops.py,
fusion_flash_attention, which all but the last use, says is_causal=True for more than one query, whatever the mask. What
then happens:

- A mask beside is_causal=True: Paddle's flash attention kernel raised an error (phi/kernels/gpu/flash_attn_utils.h,
  FlashAttnParamsBase), 3.3.1 hands it both unchecked, which we have not seen on a card; its other two ignore the mask
  (nn/functional/sdpa.py).
- More keys than queries and no mask: sdpa.py, check_flash_causal_non_square_seqlens, refuses flash attention; the other
  two align the triangle at the top left (memory_efficient_attention/kernel_forward.h, causal_diagonal_offset 0). With a
  prefix of p, token i sees the first i + 1 keys of the prefix in place of the prefix and the tokens up to itself.
- One query after cached keys: its row always counts as causal, so padding on the left is attended to.

Corrected: a mask is dropped only where each query sees all keys up to its own and no others, aligned at the bottom
right. A mask goes without is_causal. Where there is none, queries of zeros in front make as many as there are keys:
the triangle of a square has one alignment only, and every kernel computes it. Their rows are cut off again. Mixtral
has a call of its own, and keeps a mask that is no square.
"""

from typing import Any

import paddle
from paddle import _C_ops
from paddlenlp.transformers.llama import fusion_ops
from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.mixtral import modeling as mixtral
from paddlenlp.transformers.qwen2 import modeling as qwen2
from paddlenlp.transformers.qwen2_moe import modeling as qwen2_moe

from launch.upstream.module_view import ModuleView

HALF = (paddle.float16, paddle.bfloat16)
_version_3 = False


def use_version_3(wanted: bool) -> None:
    """Let version 3 of flash attention's kernels, or not, compute causal attention of as many queries as keys."""
    global _version_3
    _version_3 = wanted


def _by_version_3(query, key, value) -> paddle.Tensor:
    """Return causal attention, as paddle.nn.functional.flash_attention.flash_attention calls the kernel.

    Its flag for this would change FlashMask, too.
    """
    kernel: Any = _C_ops.flash_attn_v3
    unscaled = (None, None, None, None)  # another part of the queries, and scales of 8 bit values
    unlimited = (-1, -1, 0.0)  # the window on both sides, the cap of the scores
    packing = (1, False, False, 0)  # splits of the keys, heads packed by the caller and how, processors to leave alone
    scale = query.shape[-1] ** -0.5
    return kernel(query, key, value, *unscaled, scale, True, *unlimited, *packing)[0]


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    llama.is_casual_mask = qwen2.is_casual_mask = qwen2_moe.is_casual_mask = _is_causal
    mixtral.is_casual_mask = _is_causal_square
    if fusion_ops.F.scaled_dot_product_attention is not attention:
        fusion_ops.F = ModuleView(fusion_ops.F, scaled_dot_product_attention=attention)


def _is_causal(mask: paddle.Tensor) -> bool:
    """Return whether a mask is causal.

    mask: [batch, 1, queries, keys], added to the scores, 0 where a query sees a key.
    """
    queries, keys = mask.shape[-2:]
    causal = paddle.tril(paddle.ones([queries, keys], dtype="bool"), diagonal=keys - queries)
    return bool(((mask == 0) == causal).all())


def _is_causal_square(mask: paddle.Tensor) -> bool:
    return mask.shape[-2] == mask.shape[-1] and _is_causal(mask)


def attention(query, key, value, attn_mask=None, is_causal=False, **kwargs) -> paddle.Tensor:
    """Return attention in the shape of query, [batch, queries, heads, size].

    Key and value: [batch, keys, key_value_heads, size].
    """
    attend = paddle.nn.functional.scaled_dot_product_attention
    if attn_mask is not None:
        return attend(query, key, value, attn_mask=attn_mask, **kwargs)
    earlier = key.shape[1] - query.shape[1]
    if _version_3 and is_causal and earlier == 0 and query.dtype in HALF and not kwargs:
        return _by_version_3(query, key, value)
    if not is_causal or earlier == 0:
        return attend(query, key, value, is_causal=is_causal, **kwargs)
    batch, _, heads, size = query.shape
    zeros = paddle.zeros([batch, earlier, heads, size], dtype=query.dtype)
    return attend(paddle.concat([zeros, query], axis=1), key, value, is_causal=True, **kwargs)[:, earlier:]
