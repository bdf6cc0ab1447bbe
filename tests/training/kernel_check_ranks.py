"""Attention and RMSNorm functions, right and wrong, and what the checks at start say of them. Imports Paddle."""

import sys
from types import SimpleNamespace

import numpy as np
import paddle

from tests.devices.flash_mask import flashmask_attention

PREFIX = 21  # keys before the first query's


def verdicts(cases: list) -> list[str]:
    """What the check says of functions below, for [name, dtype, (heads, key_value heads, size), kind] each.

    kind: of the shapes that are tried, "causal", "dense", "prefix" or "packed".
    """
    from launch.switches.kernel_checks import Heads, attention_fault, packed_shapes, shapes

    paddle.nn.functional.flashmask_attention = flashmask_attention
    tried = {kind: shapes(kind == "dense", PREFIX if kind == "prefix" else 0) for kind in ("causal", "dense", "prefix")}
    tried["packed"] = packed_shapes()
    return [attention_fault(globals()[name], Heads(*heads), dtype, tried[kind]) for name, dtype, heads, kind in cases]


def by_version_3(kind: str) -> list:
    """What the trial of flash attention 3 says on a card with Paddle's kernel for a CPU, none, a "right" or a "wrong"
    one, what the kernel gets beside query, key and value, and whether it stays in use."""
    from launch.families.registry import FAMILIES
    from launch.switches import FLASH_ATTENTION_3, kernel_checks
    from launch.switches.switch import SwitchCase
    from launch.upstream import llama_flash_masks

    calls, factor = [], {"right": 1.0, "wrong": 1.1}.get(kind)

    def kernel(query, key, value, *others):
        calls.append(others)
        return _attend(query, key, value, None).astype(query.dtype) * factor, None

    if factor:
        paddle._C_ops.flash_attn_v3 = kernel
    if kind != "none":
        kernel_checks.version_3_missing = lambda: ""
    config = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 256}
    verdict = FLASH_ATTENTION_3.trial(SwitchCase(FAMILIES["llama"], (9, 0), head_size=64, config=config))
    return [verdict, sorted(map(list, set(calls))), llama_flash_masks._version_3]


def leaves_random_numbers_alone() -> bool:
    paddle.seed(5)
    expected = paddle.rand([3]).tolist()
    paddle.seed(5)
    verdicts([("right", "bfloat16", (1, 1, 8), "causal")])
    return paddle.rand([3]).tolist() == expected


def right(query, key, value, mask):
    """Exact in float32, rounded at the end, as a kernel does."""
    return _attend(query, key, value, mask).astype(query.dtype)


def rounded(query, key, value, mask):
    """Rounds the probabilities, too."""
    return _attend(query, key, value, mask, of_weights=lambda weights: weights.astype(query.dtype)).astype(query.dtype)


def not_causal(query, key, value, mask):
    return _attend(query, key, value, mask, causal=False).astype(query.dtype)


def ignores_the_mask(query, key, value, mask):
    return right(query, key, value, None)


def ignores_the_ends(query, key, value, mask):
    return right(query, key, value, None)


def zero(query, key, value, mask):
    return right(query, key, value, mask) * 0


def not_a_number(query, key, value, mask):
    return right(query, key, value, mask) * float("nan")


def one_position_is_garbage(query, key, value, mask):
    here = np.zeros([1, query.shape[1], 1, 1], "float32")
    here[0, 150] = 1
    return (_attend(query, key, value, mask) * paddle.to_tensor(1 - here)).astype(query.dtype)


def scaled_gradient(query, key, value, mask):
    """Right forward, twice the gradient of the key."""
    return right(query, key * 2 - key.detach(), value, mask)


def lost_gradient(query, key, value, mask):
    """Right forward, no gradient reaches the query."""
    lost = query.astype("float32") * 0 + query.detach().astype("float32")
    return _attend(lost, key, value, mask).astype(query.dtype)


def wrong_group(query, key, value, mask):
    """Query heads 0 1 0 1 share a key instead of 0 0 1 1."""
    order = [index % key.shape[2] for index in range(query.shape[2])]
    return right(query, _pick(key, order), _pick(value, order), mask)


def mixes_samples(query, key, value, mask):
    """As paddlenlp's ChatGLM2: length and batch are swapped by a reshape."""
    result = right(query, key, value, mask)
    batch, length, *rest = result.shape
    return result.reshape([length, batch, *rest]).transpose([1, 0, 2, 3])


def refuses(query, key, value, mask):
    raise OSError(
        "C++ Traceback ...\n----------------------\nError Message Summary:\n----------------------\n"
        "ExternalError: Error in Flash-Attention, detail information is: `is_sm8x || is_sm90` check failed\n"
        "  [Hint: Expected status == true, but received status:0 != true:1.]"
    )


def aligned_top_left(query, key, value, mask):
    """As Paddle's other kernels: the first query sees the first key alone, though a prefix is before its own."""
    return _attend(query, key, value, mask, diagonal=0).astype(query.dtype)


def wrong_at_odd_lengths(query, key, value, mask):
    """The last row is not computed where it is alone in a pair of rows."""
    computed = np.ones([1, query.shape[1], 1, 1], "float32")
    computed[0, -1] = 1 - query.shape[1] % 2
    return (_attend(query, key, value, mask) * paddle.to_tensor(computed)).astype(query.dtype)


def paddlenlps_chatglm(query, key, value, mask):
    """The function that models call; on a CPU Paddle computes it exactly, in float32."""
    return _by_paddlenlp("chatglm", query, key, value, mask)


def paddlenlps_llama(query, key, value, mask):
    return _by_paddlenlp("llama", query, key, value, mask)


def paddlenlps_baichuan(query, key, value, mask):
    return _by_paddlenlp("baichuan", query, key, value, mask)


def _by_paddlenlp(family, query, key, value, mask):
    from launch.families.registry import FAMILIES
    from launch.switches.kernel_checks import flash_attention_of

    arguments = [tensor.astype("float32") for tensor in (query, key, value)]
    attend = flash_attention_of(FAMILIES[family])
    wide = mask if mask is None or mask.dtype == paddle.int32 else mask.astype("float32")
    return attend(*arguments, wide).astype(query.dtype)


def _attend(query, key, value, mask, causal=True, diagonal=None, of_weights=lambda weights: weights):
    """Exact attention in float32. diagonal: the last key that the first query sees; None: its own."""
    groups = query.shape[2] // key.shape[2]
    query, key, value = (tensor.astype("float32").transpose([0, 2, 1, 3]) for tensor in (query, key, value))
    key, value = (tensor.repeat_interleave(groups, axis=1) for tensor in (key, value))
    scores = paddle.matmul(query, key, transpose_y=True) / query.shape[-1] ** 0.5
    if causal:
        last = key.shape[2] - query.shape[2] if diagonal is None else diagonal
        scores = scores + paddle.triu(paddle.full(scores.shape[-2:], -1e30), diagonal=last + 1)
    if mask is not None:
        scores = scores + mask.astype("float32")
    weights = of_weights(paddle.nn.functional.softmax(scores, axis=-1)).astype("float32")
    return paddle.matmul(weights, value).transpose([0, 2, 1, 3])


def _pick(tensor, order):
    return paddle.index_select(tensor.astype("float32"), paddle.to_tensor(order), axis=2).astype(tensor.dtype)


def rms_norm_verdict(kind: str, *dtypes: str) -> str:
    """What the check says of a module that stands in for fused_ln.

    dtypes: of x and the weight. kind: right, another epsilon, a wrong gradient, not a number, fails.
    """

    from launch.switches.kernel_checks import fused_ln_rms_norm, rms_norm_fault

    def fused_rms_norm(x, weight, epsilon):
        if kind == "fails":
            raise OSError("Error Message Summary:\n-----\nno kernel image\nfor this card")
        wrong = 0.1 if kind == "another epsilon" else epsilon
        wide = x.astype("float32")
        y = wide * paddle.rsqrt(wide.pow(2).mean(-1, keepdim=True) + wrong) * weight.astype("float32")
        if kind == "a wrong gradient":
            y = (y.detach() - y) + y.detach()
        if kind == "not a number":
            y = y * float("nan")
        return y.astype(weight.dtype), None

    sys.modules["fused_ln"] = SimpleNamespace(fused_rms_norm=fused_rms_norm)
    return rms_norm_fault("the module fused_ln", fused_ln_rms_norm, dtypes=tuple(dtypes))
