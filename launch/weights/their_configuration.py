"""Our configuration to the config.json that a family's own loader expects: the way back of configuration.py."""

from launch.families.registry import family_of_config
from launch.weights.configuration import TOKENS

# transformers has these classes itself; the others come as code beside the original weights, which auto_map names.
NATIVE = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "bloom": "BloomForCausalLM",
    "opt": "OPTForCausalLM",
}
DECODER = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
GATED = (*DECODER, "intermediate_size", "initializer_range", "rms_norm_eps", "tie_word_embeddings")


def their_config(ours: dict, dtype: str) -> dict:
    """The values of a Hugging Face config.json. dtype: of the weights."""
    family = family_of_config(ours).name
    tokens = {key: ours[key] for key in TOKENS if ours.get(key) is not None}
    return _CONVERTERS[family](ours) | tokens | {"torch_dtype": dtype}


def needs_own_code(ours: dict) -> bool:
    """Whether transformers runs the model only with the Python files that lie beside the original weights."""
    return family_of_config(ours).name not in NATIVE


def _llama(ours: dict) -> dict:
    return _gated_decoder(ours, "llama") | {"attention_bias": False, "mlp_bias": False} | _rope_scaling(ours)


def _qwen2(ours: dict) -> dict:
    return _gated_decoder(ours, "qwen2") | {"use_sliding_window": False}


def _gated_decoder(ours: dict, model_type: str) -> dict:
    return _native(model_type) | {
        "hidden_act": "silu",
        **_taken(ours, *GATED),
        "num_key_value_heads": ours.get("num_key_value_heads") or ours["num_attention_heads"],
        "rope_theta": ours.get("rope_theta", 10000.0),
    }


def _rope_scaling(ours: dict) -> dict:
    if ours.get("rope_scaling_type") == "linear":
        return {"rope_scaling": {"rope_type": "linear", "type": "linear", "factor": ours["rope_scaling_factor"]}}
    return {"rope_scaling": ours["rope_scaling"]} if ours.get("rope_scaling") else {}


def _baichuan(ours: dict) -> dict:
    """Baichuan-13B; 7B is a LLaMA for us, and leaves as one."""
    taken = _taken(ours, *(key for key in GATED if key != "max_position_embeddings"))
    return _with_code("baichuan", "BaichuanConfig", "BaichuanForCausalLM") | {
        "hidden_act": "silu",
        **taken,
        "model_max_length": ours["max_position_embeddings"],
    }


def _chatglm(ours: dict) -> dict:
    return _with_code("chatglm", "ChatGLMConfig", "ChatGLMForConditionalGeneration") | {
        **_taken(ours, "vocab_size", "hidden_size", "inner_hidden_size", "num_attention_heads", "max_sequence_length"),
        "num_layers": ours["num_hidden_layers"],
        **_taken(ours, "layernorm_epsilon", "mask_token_id", "gmask_token_id"),
        "position_encoding_2d": True,
        "quantization_bit": 0,
    }


def _chatglm_v2(ours: dict) -> dict:
    groups = ours["multi_query_group_num"]
    return _with_code("chatglm", "ChatGLMConfig", "ChatGLMForConditionalGeneration") | {
        "padded_vocab_size": ours["vocab_size"],
        **_taken(ours, "hidden_size", "ffn_hidden_size", "kv_channels", "num_attention_heads", "layernorm_epsilon"),
        "num_layers": ours["num_hidden_layers"],
        "multi_query_attention": groups != ours["num_attention_heads"],
        "multi_query_group_num": groups,
        "seq_length": ours["max_sequence_length"],
        "add_qkv_bias": ours["add_qkv_bias"],
        "add_bias_linear": False,
        "apply_residual_connection_post_layernorm": False,
        "original_rope": True,
        "post_layer_norm": True,
        "quantization_bit": 0,
        "rmsnorm": True,
    }


def _bloom(ours: dict) -> dict:
    sizes = ("vocab_size", "hidden_size", "n_layer", "n_head", "layer_norm_epsilon", "initializer_range")
    others = ("apply_residual_connection_post_layernorm", "attention_dropout", "hidden_dropout")
    return _native("bloom") | _taken(ours, *sizes, *others)


def _opt(ours: dict) -> dict:
    return _native("opt") | {
        **_taken(ours, *DECODER),
        "ffn_dim": ours["intermediate_size"],
        "word_embed_proj_dim": ours["hidden_size"],
        "activation_function": "relu",
        "do_layer_norm_before": True,
        "init_std": ours.get("initializer_range", 0.02),
        "dropout": ours.get("hidden_dropout_prob", 0.1),
        "attention_dropout": ours.get("attention_probs_dropout_prob", 0.0),
    }


def _glm(ours: dict) -> dict:
    sizes = ("vocab_size", "hidden_size", "num_layers", "num_attention_heads", "max_sequence_length")
    others = ("layernorm_epsilon", "initializer_range", "attention_scale")
    dropouts = ("embedding_dropout_prob", "attention_dropout_prob", "output_dropout_prob")
    return _with_code("glm", "GLMConfig", "GLMForConditionalGeneration") | {
        **_taken(ours, *sizes, *others, *dropouts),
        "block_position_encoding": True,
    }


def _native(model_type: str) -> dict:
    return {"architectures": [NATIVE[model_type]], "model_type": model_type}


def _with_code(model_type: str, config_class: str, model_class: str) -> dict:
    """The files configuration_X.py and modeling_X.py lie beside the original weights."""
    return {
        "architectures": [model_class],
        "auto_map": {
            "AutoConfig": f"configuration_{model_type}.{config_class}",
            "AutoModelForCausalLM": f"modeling_{model_type}.{model_class}",
        },
        "model_type": model_type,
    }


def _taken(ours: dict, *keys: str) -> dict:
    """Those of the keys that our configuration states; the others have the same defaults on both sides."""
    return {key: ours[key] for key in keys if ours.get(key) is not None}


_CONVERTERS = {
    "llama": _llama,
    "baichuan": _baichuan,
    "qwen2": _qwen2,
    "chatglm": _chatglm,
    "chatglm_v2": _chatglm_v2,
    "bloom": _bloom,
    "opt": _opt,
    "glm": _glm,
}
