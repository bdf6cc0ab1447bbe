"""Every parameter of a model by name and shape, from its configuration alone: no Paddle, no weights.

    for parameter in parameters(load_config("llama-7b")):
        print(parameter.name, parameter.shape)

Names and shapes are those of paddlenlp 3.0.0b4 (a linear layer's weight is [inputs, outputs]) and of the files that
we write; tests compare them with the models themselves. A head that shares the word embedding is not listed twice.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from launch.errors import UserError

WORD, POSITION, LINEAR, BIAS, NORM, HEAD = "word embedding", "position embedding", "linear", "bias", "norm", "head"


@dataclass(frozen=True)
class Parameter:
    """One tensor. kind: one of the six words above, what the tensor does."""

    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)


def parameters(config: dict) -> list[Parameter]:
    """All parameters, from the word embedding to the head.

    Raises UserError for a family without a formula, and for a configuration without one of the sizes.
    """
    model_type = config.get("model_type")
    if model_type not in _FORMULAS:
        raise UserError(f"model_type: no parameters are known for {model_type!r}, only for {', '.join(_FORMULAS)}.")
    try:
        return list(_FORMULAS[model_type](config))
    except KeyError as error:
        raise UserError(
            f"config.json: {error.args[0]}: not found. A model of type {model_type!r} needs it: copy config.json from "
            "the published model again."
        ) from None


def layers(config: dict) -> int:
    """Transformer layers, under the name that the family has for them."""
    return config.get("n_layer") or config.get("num_layers") or config["num_hidden_layers"]


def attention_heads(config: dict) -> int:
    """Heads of the queries."""
    return config.get("n_head") or config["num_attention_heads"]


def key_value_heads(config: dict) -> int:
    """Heads of keys and values: fewer than of queries under grouped-query attention."""
    return config.get("num_key_value_heads") or config.get("multi_query_group_num") or attention_heads(config)


def head_size(config: dict) -> int:
    """Numbers in an attention head, under the names that families have for it."""
    return config.get("head_dim") or config.get("kv_channels") or config["hidden_size"] // attention_heads(config)


def _llama(config: dict) -> Iterator[Parameter]:
    return _gated_decoder(config, "llama", qkv_bias=False)


def _qwen2(config: dict) -> Iterator[Parameter]:
    return _gated_decoder(config, "qwen2", qkv_bias=True)


def _gated_decoder(config: dict, prefix: str, qkv_bias: bool) -> Iterator[Parameter]:
    """RMSNorm, separate query, key and value, SwiGLU."""
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    key_value = hidden // attention_heads(config) * key_value_heads(config)
    yield Parameter(f"{prefix}.embed_tokens.weight", (config["vocab_size"], hidden), WORD)
    for i in range(layers(config)):
        layer = f"{prefix}.layers.{i}"
        yield from _linear(f"{layer}.self_attn.q_proj", hidden, hidden, qkv_bias)
        yield from _linear(f"{layer}.self_attn.k_proj", hidden, key_value, qkv_bias)
        yield from _linear(f"{layer}.self_attn.v_proj", hidden, key_value, qkv_bias)
        yield from _linear(f"{layer}.self_attn.o_proj", hidden, hidden, bias=False)
        yield from _linear(f"{layer}.mlp.gate_proj", hidden, ffn, bias=False)
        yield from _linear(f"{layer}.mlp.up_proj", hidden, ffn, bias=False)
        yield from _linear(f"{layer}.mlp.down_proj", ffn, hidden, bias=False)
        yield from _norm(f"{layer}.input_layernorm", hidden, bias=False)
        yield from _norm(f"{layer}.post_attention_layernorm", hidden, bias=False)
    yield from _norm(f"{prefix}.norm", hidden, bias=False)
    if not config.get("tie_word_embeddings"):
        yield Parameter("lm_head.weight", (hidden, config["vocab_size"]), HEAD)


def _chatglm(config: dict) -> Iterator[Parameter]:
    hidden, ffn = config["hidden_size"], config["inner_hidden_size"]
    yield Parameter("chatglm.transformer.word_embeddings.weight", (config["vocab_size"], hidden), WORD)
    for i in range(layers(config)):
        yield from _glm_layer(f"chatglm.transformer.layers.{i}", hidden, ffn)
    yield from _norm("chatglm.transformer.final_layernorm", hidden)


def _glm(config: dict) -> Iterator[Parameter]:
    hidden = config["hidden_size"]
    positions = (config["max_sequence_length"] + 1, hidden)
    yield Parameter("glm.word_embeddings.weight", (config["vocab_size"], hidden), WORD)
    yield Parameter("glm.transformer.position_embeddings.weight", positions, POSITION)
    yield Parameter("glm.transformer.block_position_embeddings.weight", positions, POSITION)
    for i in range(layers(config)):
        yield from _glm_layer(f"glm.transformer.layers.{i}", hidden, 4 * hidden)
    yield from _norm("glm.transformer.final_layernorm", hidden)


def _glm_layer(layer: str, hidden: int, ffn: int) -> Iterator[Parameter]:
    yield from _norm(f"{layer}.input_layernorm", hidden)
    yield from _linear(f"{layer}.attention.query_key_value", hidden, 3 * hidden)
    yield from _linear(f"{layer}.attention.dense", hidden, hidden)
    yield from _norm(f"{layer}.post_attention_layernorm", hidden)
    yield from _linear(f"{layer}.mlp.dense_h_to_4h", hidden, ffn)
    yield from _linear(f"{layer}.mlp.dense_4h_to_h", ffn, hidden)


def _chatglm_v2(config: dict) -> Iterator[Parameter]:
    hidden, ffn = config["hidden_size"], config["ffn_hidden_size"]
    key_value = config["kv_channels"] * key_value_heads(config)
    prefix = "chatglm_v2"
    yield Parameter(f"{prefix}.embedding.word_embeddings.weight", (config["vocab_size"], hidden), WORD)
    for i in range(layers(config)):
        layer = f"{prefix}.encoder.layers.{i}"
        yield from _norm(f"{layer}.input_layernorm", hidden, bias=False)
        yield from _linear(f"{layer}.self_attention.query_key_value", hidden, hidden + 2 * key_value)
        yield from _linear(f"{layer}.self_attention.dense", hidden, hidden, bias=False)
        yield from _norm(f"{layer}.post_attention_layernorm", hidden, bias=False)
        yield from _linear(f"{layer}.mlp.dense_h_to_4h", hidden, 2 * ffn, bias=False)
        yield from _linear(f"{layer}.mlp.dense_4h_to_h", ffn, hidden, bias=False)
    yield from _norm(f"{prefix}.encoder.final_layernorm", hidden, bias=False)
    yield Parameter(f"{prefix}.output_layer.weight", (hidden, config["vocab_size"]), HEAD)


def _bloom(config: dict) -> Iterator[Parameter]:
    hidden = config["hidden_size"]
    yield Parameter("bloom.word_embeddings.weight", (config["vocab_size"], hidden), WORD)
    yield from _norm("bloom.word_embeddings_layernorm", hidden)
    for i in range(layers(config)):
        layer = f"bloom.h.{i}"
        yield from _norm(f"{layer}.input_layernorm", hidden)
        yield from _linear(f"{layer}.self_attention.query_key_value", hidden, 3 * hidden)
        yield from _linear(f"{layer}.self_attention.dense", hidden, hidden)
        yield from _norm(f"{layer}.post_attention_layernorm", hidden)
        yield from _linear(f"{layer}.mlp.dense_h_to_4h", hidden, 4 * hidden)
        yield from _linear(f"{layer}.mlp.dense_4h_to_h", 4 * hidden, hidden)
    yield from _norm("bloom.ln_f", hidden)


def _opt(config: dict) -> Iterator[Parameter]:
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    positions = config["max_position_embeddings"] + 2  # the first two rows stand for padding
    yield Parameter("opt.embeddings.word_embeddings.weight", (config["vocab_size"], hidden), WORD)
    yield Parameter("opt.embeddings.position_embeddings.weight", (positions, hidden), POSITION)
    for i in range(layers(config)):
        layer = f"opt.decoder.layers.{i}"
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from _linear(f"{layer}.self_attn.{projection}", hidden, hidden)
        yield from _linear(f"{layer}.linear1", hidden, ffn)
        yield from _linear(f"{layer}.linear2", ffn, hidden)
        yield from _norm(f"{layer}.norm1", hidden)
        yield from _norm(f"{layer}.norm2", hidden)
    yield from _norm("opt.decoder.final_layer_norm", hidden)


def _linear(name: str, inputs: int, outputs: int, bias: bool = True) -> Iterator[Parameter]:
    yield Parameter(f"{name}.weight", (inputs, outputs), LINEAR)
    if bias:
        yield Parameter(f"{name}.bias", (outputs,), BIAS)


def _norm(name: str, size: int, bias: bool = True) -> Iterator[Parameter]:
    yield Parameter(f"{name}.weight", (size,), NORM)
    if bias:
        yield Parameter(f"{name}.bias", (size,), NORM)


_FORMULAS: dict[str, Callable[[dict], Iterator[Parameter]]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "chatglm": _chatglm,
    "chatglm_v2": _chatglm_v2,
    "bloom": _bloom,
    "glm": _glm,
    "opt": _opt,
}
