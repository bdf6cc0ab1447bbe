"""ERNIE 4.5, dense: paddlenlp's Qwen2 with an attention layer whose positions turn neighbors, in float32.

Elements 0 and 1 of a head are a pair, 2 and 3 the next, where LLaMA has the first half and the second. Cosines, sines
and products are in float32 whatever the dtype of the weights. Heads have a size of their own. All else is Qwen2's code,
whose names the parameters have, too. Source: transformers, models/ernie4_5/modeling_ernie4_5.py.
"""

import paddle
from paddle.autograd import PyLayer
from paddlenlp.transformers.qwen2.modeling import Qwen2RotaryEmbedding

from launch.models.qwen3_model import (
    ATTENTIONS,
    Qwen3Attention,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForCausalLMPipe,
    Qwen3Model,
)


class Ernie4_5Config(Qwen3Config):
    """The configuration of an ERNIE 4.5."""

    model_type = "ernie4_5"


class Float32RotaryEmbedding(Qwen2RotaryEmbedding):
    """Cosines and sines that stay in float32."""

    def forward(self, x, seq_len=None):
        """Return cosines and sines [1, seq_len, 1, size] in float32; both halves of the last axis are alike."""
        return super().forward(x[:1, :1, :1, :1].astype("float32"), seq_len)


class Turn(PyLayer):
    """x [batch, length, heads, size] with each pair of neighbors turned, which saves cosines and sines alone."""

    @staticmethod
    def forward(ctx, x, cosine, sine):
        """Turn x by the angles."""
        ctx.save_for_backward(cosine, sine)
        return _turned(x, cosine, sine)

    @staticmethod
    def backward(ctx, grad):
        """Turn the gradient back."""
        cosine, sine = ctx.saved_tensor()
        return _turned(grad, cosine, -sine), None, None


def _turned(x: paddle.Tensor, cosine: paddle.Tensor, sine: paddle.Tensor) -> paddle.Tensor:
    """Turn x by cosines and sines in float32, [1 or batch, length, 1, size / 2]."""
    with paddle.amp.auto_cast(False):
        first, second = x.astype("float32").reshape([*x.shape[:-1], -1, 2]).unbind(axis=-1)
        turned = paddle.stack([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
        return turned.reshape(x.shape).astype(x.dtype)


def turn_neighbors(query, key, cosine, sine, position_ids):
    """Take the arguments of paddlenlp's apply_rotary_pos_emb, the tables in float32."""
    pairs = cosine.shape[-1] // 2
    tables = [table[..., :pairs] for table in (cosine, sine)]
    if position_ids is None:  # in a pipeline: from 0 on
        tables = [table[:, : query.shape[1]] for table in tables]
    else:
        tables = [table[0, :, 0][position_ids].unsqueeze(2) for table in tables]
    return Turn.apply(query, *tables), Turn.apply(key, *tables)


class Ernie4_5Attention(Qwen3Attention):
    """Attention of this rank's heads, whose positions turn neighbors."""

    norms_heads = False
    rotary_class = Float32RotaryEmbedding
    rotate = staticmethod(turn_neighbors)


ATTENTIONS["ernie4_5"] = Ernie4_5Attention


class Ernie4_5Model(Qwen3Model):
    """ERNIE 4.5 without its head."""

    config_class = Ernie4_5Config


class Ernie4_5ForCausalLM(Qwen3ForCausalLM):
    """ERNIE 4.5."""

    config_class = Ernie4_5Config


class Ernie4_5ForCausalLMPipe(Qwen3ForCausalLMPipe):
    """ERNIE 4.5 as stages of a pipeline."""

    config_class = Ernie4_5Config
