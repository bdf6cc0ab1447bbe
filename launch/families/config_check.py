"""The values of a model's config.json: types, ranges and how they go together. No Paddle.

    check_values(values, path)   every known key alone: Hugging Face's names and ours
    check_config(config, path)   the same, and what must fit together in a configuration of ours

Both raise UserError, which names file, key, the value found, the values allowed and the fix.
"""

import math
from collections.abc import Callable
from typing import Any

from launch.errors import UserError
from launch.families.parameters import HEAD_SIZE, HEADS, KEY_VALUE_HEADS, stated

INT32_MAX = 2**31 - 1
FIX = "Correct the value, or copy config.json from the published model again"

SIZES = [
    "ffn_dim",
    "ffn_hidden_size",
    "head_dim",
    "hidden_size",
    "inner_hidden_size",
    "intermediate_size",
    "kv_channels",
    "max_position_embeddings",
    "max_sequence_length",
    "model_max_length",
    "multi_query_group_num",
    "n_embed",
    "n_head",
    "n_layer",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "num_layers",
    "original_max_position_embeddings",
    "padded_vocab_size",
    "seq_length",
    "vocab_size",
    "word_embed_proj_dim",
]
EPSILONS = ["layer_norm_epsilon", "layer_norm_eps", "layernorm_epsilon", "rms_norm_eps"]
POSITIVE = ["factor", "high_freq_factor", "low_freq_factor", "rope_ratio", "rope_scaling_factor", "rope_theta"]
NOT_NEGATIVE = ["init_std", "initializer_range"]
SHARES = [
    "attention_dropout",
    "attention_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "embedding_dropout_prob",
    "hidden_dropout",
    "hidden_dropout_prob",
    "output_dropout_prob",
]
SWITCHES = [
    "add_bias_linear",
    "add_qkv_bias",
    "alibi",
    "apply_residual_connection_post_layernorm",
    "attention_bias",
    "block_position_encoding",
    "do_layer_norm_before",
    "mlp_bias",
    "multi_query_attention",
    "normalize_before",
    "output_predict",
    "position_encoding_2d",
    "rmsnorm",
    "tie_word_embeddings",
    "use_cache",
]
TOKENS = ["bos_token_id", "eos_token_id", "pad_token_id"]
MASKS = ["gmask_token_id", "mask_token_id"]  # compared with the tokenizer when its ids are used
OBJECTS = ["rope_parameters", "rope_scaling"]
DTYPES = ("float32", "float16", "bfloat16", "float64")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= INT32_MAX


def _is_token(value: Any) -> bool:
    """An id, or several, as eos_token_id may be; -1 is LLaMA's way to have none."""
    ids = value if isinstance(value, list) else [value]
    return bool(ids) and all(_is_integer(token, -1) for token in ids)


# key -> (the values allowed in words, whether a value is one of them)
_ALLOWED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(SIZES, ("a whole number, 1 or more", lambda value: _is_integer(value, 1))),
    **dict.fromkeys(EPSILONS, ("a number above 0, at most 1", lambda value: _is_number(value) and 0 < value <= 1)),
    **dict.fromkeys(POSITIVE, ("a number above 0", lambda value: _is_number(value) and value > 0)),
    **dict.fromkeys(NOT_NEGATIVE, ("a number, 0 or more", lambda value: _is_number(value) and value >= 0)),
    **dict.fromkeys(SHARES, ("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)),
    **dict.fromkeys(SWITCHES, ("true or false", lambda value: isinstance(value, bool))),
    **dict.fromkeys((*TOKENS, *MASKS), ("a token id, or a list of token ids", _is_token)),
    **dict.fromkeys(OBJECTS, ("an object", lambda value: isinstance(value, dict))),
    **dict.fromkeys(("dtype", "torch_dtype"), (", ".join(DTYPES), lambda value: value in DTYPES)),
    # A number in GLM's configuration; in ChatGLM's, as paddlenlp writes it, a switch.
    "attention_scale": (
        "a number above 0, or true or false",
        lambda value: isinstance(value, bool) or (_is_number(value) and value > 0),
    ),
    "model_type": ("a name in quotes", lambda value: isinstance(value, str)),
}


def check_values(values: dict, path: str) -> None:
    """Each key alone. A key without a value (null) is not stated; unknown keys are left to who reads them."""
    for key, value in values.items():
        if value is None or key not in _ALLOWED:
            continue
        allowed, is_allowed = _ALLOWED[key]
        if not is_allowed(value):
            raise _fault(path, key, value, allowed)
        if key in OBJECTS:
            check_values(value, f"{path}: {key}")


def check_config(config: dict, path: str) -> None:
    """Each key alone, then heads against sizes and token ids against the vocabulary, as far as they are stated."""
    check_values(config, path)
    hidden_size = config.get("hidden_size")
    heads_key = next((name for name in HEADS if config.get(name)), HEADS[-1])
    heads = config.get(heads_key)
    head_size = stated(config, HEAD_SIZE)
    if hidden_size and heads and not head_size:
        if hidden_size % heads:
            raise _fault(path, heads_key, heads, f"a divisor of hidden_size, which is {hidden_size}")
        head_size = hidden_size // heads
    if head_size and head_size % 2 and config.get("rope_theta") and not config.get("alibi"):
        allowed = f"a number of heads of even size: rotary positions turn pairs, and a head has {head_size} elements"
        raise _fault(path, heads_key, heads, allowed)
    for key in KEY_VALUE_HEADS:
        if heads and config.get(key) and heads % config[key]:
            raise _fault(path, key, config[key], f"a divisor of {heads_key}, which is {heads}")
    vocab_size = config.get("vocab_size")
    for key in TOKENS if vocab_size else ():
        ids = config.get(key)
        for token in ids if isinstance(ids, list) else [ids]:
            if token is not None and token >= vocab_size:
                raise _fault(path, key, token, f"a token id below vocab_size, which is {vocab_size}")


def _fault(path: str, key: str, value: Any, allowed: str) -> UserError:
    return UserError(f"{path}: {key}: found {value!r}, allowed: {allowed}. {FIX}.")
