"""Paddle's own choice of an attention kernel as on a card, on a CPU. For ranks that have Paddle.

    with pretended_card((8, 0), "bfloat16") as taken:
        F.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert taken == ["flash"]

The selector is Paddle's (nn/functional/sdpa.py); it is told of a card, and of tensors on it in that dtype. What it
chooses is computed in the tensors' own dtype by a stand-in that refuses, aligns and ignores as the kernel does.
"""

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import paddle
from paddle.nn.attention import SDPBackend
from paddle.nn.functional import sdpa

from launch.upstream.module_view import ModuleView

# Of selector functions that keep what they found about a card.
CACHED = (
    "check_sm_version",
    "check_flash_attention_hardware_support",
    "use_tensor_cores",
    "minimum_gemm_alignment",
    "check_mem_efficient_hardware_support",
)
PLACE = SimpleNamespace(is_gpu_place=lambda: True, is_custom_place=lambda: False, gpu_device_id=lambda: 0)


@contextmanager
def pretended_card(capability: tuple[int, int], dtype: str) -> Iterator[list[str]]:
    """Gives the list to which each attention adds the kernel it takes: "flash", "memory efficient" or "math".

    capability: compute capability of the card. dtype: of the tensors on it.
    """
    taken: list[str] = []

    def on_the_card(**params):
        three = {"place": (PLACE,) * 3, "dtype": (getattr(paddle, dtype),) * 3}
        return stock_params(**params | three)

    def flash_attn(query, key, value, seed, mask, dropout, causal, *rest):
        result = _flash(query, key, value, mask, causal)
        taken.append("flash")
        return result, None, None, None

    def memory_efficient(query, key, value, bias, *lengths_and_flags):
        taken.append("memory efficient")
        causal = lengths_and_flags[6]
        return _attend(query, key, value, bias, 0 if causal else None), None, None

    def math(*args):
        taken.append("math")
        return stock_math(*args)

    stock_params, stock_math = sdpa.SDPParams, sdpa._math_attention
    efficient = importlib.import_module("paddle.incubate.nn.memory_efficient_attention")
    with ExitStack() as stack:
        for module, name, instead in (
            (sdpa, "SDPParams", on_the_card),
            (sdpa, "_config", {}),
            (sdpa, "check_cuda_is_available", lambda: True),
            (sdpa, "_get_enabled_backends", lambda: list(SDPBackend)),  # as a GPU build's flags *_attn_available say
            (sdpa, "get_device_capability", lambda device: capability),
            (sdpa, "_C_ops", ModuleView(sdpa._C_ops, flash_attn=flash_attn)),
            (sdpa, "_math_attention", math),
            (efficient, "_C_ops", ModuleView(efficient._C_ops, memory_efficient_attention=memory_efficient)),
            (paddle.device, "get_all_device_type", lambda: ["cpu", "gpu"]),
            (paddle.device, "is_bf16_supported", lambda including_emulation: capability >= (8, 0)),
        ):
            stack.enter_context(patch.object(module, name, instead))
        for name in CACHED:
            getattr(sdpa, name).cache_clear()
            stack.callback(getattr(sdpa, name).cache_clear)
        yield taken


def _flash(query, key, value, mask, causal: bool):
    """Refuses as csrc/capi/flash_attn.cu does, and as phi/kernels/gpu/flash_attn_utils.h did: FlashAttnParamsBase of
    3.3.1 no longer looks for a mask beside causal."""
    if mask is None:
        return _attend(query, key, value, None, key.shape[1] - query.shape[1] if causal else None)
    if causal:
        raise ValueError("When attn_mask is set, causal can not be true.")
    batch, queries, heads, _ = query.shape
    allowed = ((batch,), (1, heads), (1, queries), (key.shape[1],))
    assert all(found in sizes for found, sizes in zip(mask.shape, allowed, strict=True)), mask.shape
    return _attend(query, key, value, mask, None)


def _attend(query, key, value, mask, diagonal: int | None):
    """diagonal: the last key that the first query sees, None for all. [batch, queries, heads, size]"""
    groups = query.shape[2] // key.shape[2]
    query, key, value = (one.transpose([0, 2, 1, 3]) for one in (query, key, value))
    key, value = (one.repeat_interleave(groups, axis=1) for one in (key, value))
    scores = paddle.matmul(query, key, transpose_y=True) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores + mask
    if diagonal is not None:
        scores = scores + paddle.triu(paddle.full_like(scores, -1e30), diagonal=diagonal + 1)
    return paddle.matmul(paddle.nn.functional.softmax(scores, axis=-1), value).transpose([0, 2, 1, 3])
