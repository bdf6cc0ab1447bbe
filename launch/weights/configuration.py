"""A Hugging Face config.json to ours, as launch/families/configs has them.

What our model classes cannot do is refused by key: a setting that is left out would give other logits without a word.
"""

from collections.abc import Callable

from launch.errors import UserError
from launch.families.config_check import check_config, check_values

TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def our_config(theirs: dict, path: str) -> dict:
    """Our configuration from the values of a config.json. path: of the file, for messages.

    Raises UserError for a model that is of no family of ours, or has a setting that its family lacks here.
    """
    check_values(theirs, path)
    model_type = theirs.get("model_type")
    if model_type not in _CONVERTERS:
        allowed = ", ".join(sorted(_CONVERTERS))
        raise UserError(f"{path}: model_type: found {model_type!r}, allowed: {allowed}.")
    config = _CONVERTERS[model_type](_Values(theirs, path))
    tokens = {key: theirs[key] for key in TOKENS if theirs.get(key) is not None}
    config |= {key: value[0] if isinstance(value, list) else value for key, value in tokens.items()}
    check_config(config, path)
    return config


def has_unit_head(theirs: dict) -> bool:
    """Whether the head's rows are divided by their lengths when the model runs: Baichuan2, which has a z-loss."""
    return theirs.get("model_type") == "baichuan" and "z_loss_weight" in theirs


class _Values:
    """The values of a config.json, with errors that name file and key."""

    def __init__(self, values: dict, path: str):
        self.values, self.path = values, path

    def get(self, key: str, default=None):
        value = self.values.get(key)
        return default if value is None else value

    def take(self, *keys: str) -> dict:
        """These keys. Raises UserError where one is missing."""
        missing = [key for key in keys if self.values.get(key) is None]
        if missing:
            raise UserError(f"{self.path}: {', '.join(missing)} missing: is this the model's own config.json?")
        return {key: self.values[key] for key in keys}

    def only(self, **allowed: object) -> None:
        """Raises UserError where a key is there and has another value."""
        for key, value in allowed.items():
            if self.get(key, value) != value:
                raise UserError(
                    f"{self.path}: {key}: found {self.values[key]!r}, allowed: {value!r}; PaddleNLP's model of this "
                    "family does nothing else."
                )


def _llama(theirs: _Values) -> dict:
    theirs.only(attention_bias=False, mlp_bias=False, pretraining_tp=1)
    return _gated_decoder(theirs, "llama") | _llama_rope_scaling(theirs)


def _qwen2(theirs: _Values) -> dict:
    theirs.only(use_sliding_window=False)
    kind, _ = _rope_scaling(theirs)
    if kind != "default":
        raise UserError(
            f"{theirs.path}: rope scaling: found {kind!r}, and PaddleNLP's Qwen2 has none. Take the key out to use the "
            "model within its original length."
        )
    return _gated_decoder(theirs, "qwen2")


def _gated_decoder(theirs: _Values, model_type: str) -> dict:
    theirs.only(hidden_act="silu")
    sizes = theirs.take("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    heads = sizes["num_attention_heads"]
    theirs.only(head_dim=sizes["hidden_size"] // heads)
    return {
        "model_type": model_type,
        **sizes,
        "num_key_value_heads": theirs.get("num_key_value_heads", heads),
        **theirs.take("max_position_embeddings"),
        "initializer_range": theirs.get("initializer_range", 0.02),
        "rms_norm_eps": theirs.get("rms_norm_eps", 1e-6),
        "rope_theta": _rope_theta(theirs),
        "tie_word_embeddings": theirs.get("tie_word_embeddings", False),
    }


def _rope_theta(theirs: _Values) -> float:
    """`rope_theta`, which transformers 5 writes within `rope_parameters`."""
    return float(theirs.get("rope_parameters", {}).get("rope_theta") or theirs.get("rope_theta", 10000.0))


def _rope_scaling(theirs: _Values) -> tuple[str, dict]:
    """(kind, its parameters) under the old name and the new one."""
    scaling = theirs.get("rope_parameters") or theirs.get("rope_scaling", {})
    return scaling.get("rope_type") or scaling.get("type") or "default", scaling


def _llama_rope_scaling(theirs: _Values) -> dict:
    kind, scaling = _rope_scaling(theirs)
    if kind == "default":
        return {}
    stated = _Values(scaling, f"{theirs.path}: rope scaling")
    if kind == "linear":
        return {"rope_scaling_type": "linear", "rope_scaling_factor": stated.take("factor")["factor"]}
    if kind == "llama3":
        keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        return {"rope_scaling": {"rope_type": "llama3", **stated.take(*keys)}}
    raise UserError(f"{theirs.path}: rope scaling: found {kind!r}, allowed: linear, llama3.")


def _baichuan(theirs: _Values) -> dict:
    """A LLaMA. 7B has rotary positions and states their number; 13B has ALiBi and states a length only."""
    if theirs.get("max_position_embeddings"):
        return _gated_decoder(theirs, "llama")
    length = theirs.take("model_max_length")["model_max_length"]
    stated = _Values(theirs.values | {"max_position_embeddings": length}, theirs.path)
    return _gated_decoder(stated, "llama") | {"alibi": True}


def _chatglm(theirs: _Values) -> dict:
    """Both ChatGLMs call themselves so."""
    return _chatglm_v2(theirs) if "ffn_hidden_size" in theirs.values else _chatglm_v1(theirs)


def _chatglm_v1(theirs: _Values) -> dict:
    theirs.only(position_encoding_2d=True, quantization_bit=0, pre_seq_len=None)
    sizes = ("vocab_size", "hidden_size", "inner_hidden_size", "num_attention_heads", "max_sequence_length")
    return {
        "model_type": "chatglm",
        **theirs.take(*sizes),
        "num_hidden_layers": theirs.take("num_layers")["num_layers"],
        "layernorm_epsilon": theirs.get("layernorm_epsilon", 1e-5),
        "position_encoding_2d": True,
        **theirs.take("mask_token_id", "gmask_token_id"),
    }


def _chatglm_v2(theirs: _Values) -> dict:
    theirs.only(
        rmsnorm=True,
        post_layer_norm=True,
        add_bias_linear=False,
        apply_residual_connection_post_layernorm=False,
        original_rope=True,
        rope_ratio=1,
        quantization_bit=0,
        pre_seq_len=None,
    )
    heads = theirs.take("num_attention_heads")["num_attention_heads"]
    grouped = theirs.get("multi_query_attention", False)
    return {
        "model_type": "chatglm_v2",
        "vocab_size": theirs.take("padded_vocab_size")["padded_vocab_size"],
        **theirs.take("hidden_size", "ffn_hidden_size", "kv_channels"),
        "multi_query_group_num": theirs.take("multi_query_group_num")["multi_query_group_num"] if grouped else heads,
        "num_hidden_layers": theirs.take("num_layers")["num_layers"],
        "num_attention_heads": heads,
        "max_sequence_length": theirs.take("seq_length")["seq_length"],
        "layernorm_epsilon": theirs.get("layernorm_epsilon", 1e-5),
        "add_qkv_bias": theirs.take("add_qkv_bias")["add_qkv_bias"],
        "add_bias_linear": False,
        "rmsnorm": True,
    }


def _bloom(theirs: _Values) -> dict:
    theirs.only(slow_but_exact=False, tie_word_embeddings=True)
    layers, heads = theirs.get("n_layer", theirs.get("num_hidden_layers")), theirs.get("n_head")
    return {
        "model_type": "bloom",
        **theirs.take("vocab_size"),
        "hidden_size": theirs.get("hidden_size", theirs.get("n_embed")),
        "n_layer": layers,
        "n_head": heads or theirs.take("num_attention_heads")["num_attention_heads"],
        "layer_norm_epsilon": theirs.get("layer_norm_epsilon", 1e-5),
        "initializer_range": theirs.get("initializer_range", 0.02),
        "apply_residual_connection_post_layernorm": theirs.get("apply_residual_connection_post_layernorm", False),
        "attention_dropout": theirs.get("attention_dropout", 0.0),
        "hidden_dropout": theirs.get("hidden_dropout", 0.0),
    }


def _opt(theirs: _Values) -> dict:
    theirs.only(
        activation_function="relu",
        do_layer_norm_before=True,
        _remove_final_layer_norm=False,
        word_embed_proj_dim=theirs.get("hidden_size"),
        tie_word_embeddings=True,
        enable_bias=True,
        layer_norm_elementwise_affine=True,
    )
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
    return {
        "model_type": "opt",
        **theirs.take(*sizes),
        "intermediate_size": theirs.take("ffn_dim")["ffn_dim"],
        "word_embed_proj_dim": theirs.get("hidden_size"),
        "hidden_act": "relu",
        "normalize_before": True,
        "initializer_range": theirs.get("init_std", 0.02),
        "hidden_dropout_prob": theirs.get("dropout", 0.1),
        "attention_probs_dropout_prob": theirs.get("attention_dropout", 0.0),
    }


def _glm(theirs: _Values) -> dict:
    """THUDM/glm-*. transformers' own "glm" is GLM-4, another model, which states an intermediate_size."""
    theirs.only(intermediate_size=None, relative_encoding=False, block_position_encoding=True)
    return {
        "model_type": "glm",
        **theirs.take("vocab_size", "hidden_size", "num_layers", "num_attention_heads", "max_sequence_length"),
        "layernorm_epsilon": theirs.get("layernorm_epsilon", 1e-5),
        "initializer_range": theirs.get("initializer_range", 0.02),
        "block_position_encoding": True,
        "attention_scale": theirs.get("attention_scale", 1.0),
        "output_predict": True,
        "embedding_dropout_prob": theirs.get("embedding_dropout_prob", 0.1),
        "attention_dropout_prob": theirs.get("attention_dropout_prob", 0.1),
        "output_dropout_prob": theirs.get("output_dropout_prob", 0.1),
    }


_CONVERTERS: dict[str, Callable[[_Values], dict]] = {
    "llama": _llama,
    "baichuan": _baichuan,
    "qwen2": _qwen2,
    "chatglm": _chatglm,
    "bloom": _bloom,
    "opt": _opt,
    "glm": _glm,
}
