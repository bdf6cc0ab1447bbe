"""Where each family's model calls attention and knows positions: there a run puts its own in paddlenlp's place.

    TAKE_OVER["bloom"](model, run)

A function for each way that paddlenlp's code has. Outside a run the model computes as before.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import paddle
from paddlenlp.transformers.chatglm_v2 import modeling as chatglm_v2
from paddlenlp.transformers.mistral import modeling as mistral
from paddlenlp.transformers.mixtral import modeling as mixtral

from launch.upstream.module_view import ModuleView


class PackedRun(Protocol):
    """The functions that a forward pass over many texts gives its layers (launch/generation/packed.py)."""

    def within(self, ours: Callable, stock: Callable) -> Callable:
        """Return a function that calls ours within a run, stock outside one."""
        ...

    @property
    def positions(self) -> paddle.Tensor:
        """int64 [tokens]: of each token of the row, in its text."""
        ...

    @property
    def length(self) -> int:
        """Positions of the row's texts, from 0 to the last."""
        ...

    def attend(self, query: paddle.Tensor, key: paddle.Tensor, value: paddle.Tensor) -> paddle.Tensor:
        """Return the attention of the row's tokens, [1, tokens, heads x size].

        Called once in each layer, in their order.

        query is [1, tokens, heads, size]; key and value have their own heads or, repeated, the query's.
        """
        ...

    def rotary(self, tables: Callable, x: paddle.Tensor, seq_len: int) -> list[paddle.Tensor]:
        """Return cosines and sines of the row's tokens, in the order of the row.

        tables: the layer's own forward pass.
        """
        ...


def _llama(model, run: PackedRun) -> None:
    """Replace the attention of LLaMA and of models whose layers have the same attributes."""
    for layer in model.sublayers():
        if hasattr(layer, "attn_func"):
            layer.attn_func = run.within(partial(_attend, run), layer.attn_func)
    _tables(model, run)


def _mistral(model, run: PackedRun) -> None:
    """Replace Mistral's attention: of its code only the function for flash attention can be replaced."""

    def attend(query, key, value, **_):
        return run.attend(query, key, value).reshape(query.shape)

    attend = run.within(attend, mistral.F.scaled_dot_product_attention)
    mistral.F = ModuleView(mistral.F, scaled_dot_product_attention=attend)
    _tables(model, run)


def _mixtral(model, run: PackedRun) -> None:
    """Replace Mixtral's attention, which is no attribute of a layer."""
    mixtral.scaled_dot_product_attention = run.within(partial(_attend, run), mixtral.scaled_dot_product_attention)
    _tables(model, run)


def _attend(run: PackedRun, query, _config, key, value, *_, **__) -> paddle.Tensor:
    """Attend with the arguments of paddlenlp's scaled_dot_product_attention."""
    return run.attend(query, key, value)


def _tables(model, run: PackedRun) -> None:
    """Replace the tables of rotary positions that LLaMA's layers have."""
    for layer in model.sublayers():
        if hasattr(layer, "rotary_emb"):
            tables = layer.rotary_emb.forward
            layer.rotary_emb.forward = run.within(partial(run.rotary, tables), tables)


def _bloom(model, run: PackedRun) -> None:
    """Replace Bloom's attention: the run adds ALiBi to the scores, by the position in the text."""

    def forward(layer, hidden_states, residual, *_, **__):
        query, key, value = layer._split_heads(layer.query_key_value(hidden_states))
        return residual + layer.dense(run.attend(query, key, value)), None

    _replace(model, "BloomAttention", run, forward)


def _opt(model, run: PackedRun) -> None:
    """Replace OPT's attention, and its positions, which have embeddings and are counted by paddlenlp from the mask."""

    def forward(layer, hidden_states, *_, **__):
        parts = (project(hidden_states) for project in (layer.q_proj, layer.k_proj, layer.v_proj))
        query, key, value = (part.reshape([0, 0, -1, layer.head_dim]) for part in parts)
        return layer.out_proj(run.attend(query, key, value)), None

    def embed(layer, *_, **__):
        return paddle.nn.Embedding.forward(layer, run.positions.unsqueeze(0) + layer.offset)

    _replace(model, "MultiHeadAttention", run, forward)
    _replace(model, "OPTLearnedPositionEmbedding", run, embed)


def _chatglm_v2(model, run: PackedRun) -> None:
    """Replace ChatGLM2's attention, whose hidden states are [tokens, 1, hidden].

    paddlenlp divides scores by the layer's number, and multiplies them by it in float32, which is left out here.
    """

    def forward(layer, hidden_states, _, rotary, **__):
        size = layer.hidden_size_per_attention_head
        heads, groups = layer.num_attention_heads_per_partition, layer.num_multi_query_groups_per_partition
        parts = layer.query_key_value(hidden_states).split([heads * size, groups * size, groups * size], axis=-1)
        query, key, value = (part.reshape([0, 0, -1, size]) for part in parts)
        query, key = (chatglm_v2.apply_rotary_pos_emb(part, rotary) for part in (query, key))
        query, key, value = (part.transpose([1, 0, 2, 3]) for part in (query, key, value))
        return layer.dense(run.attend(query, key, value).transpose([1, 0, 2])), None

    def tables(layer, *_, **__):
        """Return [tokens, pairs, cosine and sine]; the model takes the row's from 0 on."""
        return type(layer).forward(layer, run.length).index_select(run.positions)  # not all that the model has

    _replace(model, "SelfAttention", run, forward)
    _replace(model, "RotaryEmbedding", run, tables)


def _replace(model, kind: str, run: PackedRun, ours: Callable[..., Any]) -> None:
    """Replace the forward pass of the model's layers of a class, within a run.

    ours: gets the layer and its arguments.
    """
    for layer in model.sublayers():
        if type(layer).__name__ == kind:
            layer.forward = run.within(partial(ours, layer), layer.forward)


TAKE_OVER: dict[str, Callable[[Any, PackedRun], None]] = {
    "llama": _llama,
    "baichuan": _llama,
    "qwen2": _llama,
    "qwen3": _llama,
    "ernie4_5": _llama,
    "qwen2_moe": _llama,
    "qwen3_moe": _llama,
    "ernie4_5_moe": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "bloom": _bloom,
    "opt": _opt,
    "chatglm_v2": _chatglm_v2,
}
