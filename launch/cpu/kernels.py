"""Faster pieces for a model that trains on a CPU, put into the layers of this one model.

    print(apply(model))

Gradients equal stock's to 2e-5 relative; runs are bit-identical from one to the next. A call that a piece is
not made for (padding, positions of one's own, cached keys, another precision, alibi) goes to the stock code
unchanged. Classes and modules are left alone: other models in the process do not notice.
"""

import paddle

from launch.cpu import attention, rms_norm, rotary, swiglu
from launch.cpu.by_shape import ByShape


def apply(model: paddle.nn.Layer) -> str:
    """Put the fast pieces into a paddlenlp model, plain or pipeline. Returns one line that says which.

    LLaMA takes all of them; Qwen2 and Mistral take what they share with it; other families nothing.
    """
    replaced: dict[str, int] = {"RMSNorm": 0, "rotary embedding": 0, "causal attention": 0, "SwiGLU": 0}
    rotaries: dict[type, rotary.RotaryEmbedding] = {}
    masks = ByShape()
    for layer in model.sublayers(include_self=True):
        kind = type(layer)
        if not kind.__module__.startswith("paddlenlp.") or _is_replaced(layer):
            continue
        if kind.__name__ in rms_norm.CLASSES and rms_norm.is_fused(layer):
            replaced.pop("RMSNorm", None)  # neither replaced nor slow
        elif kind.__name__ in rms_norm.CLASSES:
            rms_norm.replace(layer)
            replaced["RMSNorm"] += 1
        if kind.__name__ in rotary.CLASSES:
            if kind not in rotaries:
                rotaries[kind] = rotary.RotaryEmbedding(rotary.stock_function(kind))
            rotary.replace(layer, rotaries[kind])
            replaced["rotary embedding"] += 1
        if kind.__name__ == "LlamaAttention":
            attention.replace(layer, masks)
            replaced["causal attention"] += 1
        if kind.__name__ == "LlamaModel":
            attention.replace_mask(layer)
        if kind.__name__ == "LlamaMLP" and not layer.fuse_attention_ffn:
            swiglu.replace(layer)
            replaced["SwiGLU"] += 1
    return _line(type(model).__name__, replaced)


def _is_replaced(layer: paddle.nn.Layer) -> bool:
    """True where this very layer has been given another forward already, by us or by somebody else."""
    return "forward" in vars(layer) or "_prepare_decoder_attention_mask" in vars(layer)


def _line(model: str, replaced: dict[str, int]) -> str:
    fast = [f"{count} x {piece}" for piece, count in replaced.items() if count]
    stock = [piece for piece, count in replaced.items() if not count]
    line = f"cpu_fast: {model}: " + (f"replaced {', '.join(fast)}" if fast else "nothing replaced")
    return line + (f"; stock: {', '.join(stock)}" if fast and stock else "")
