"""Tiny models as Hugging Face directories have them, on random numbers, from NumPy alone.

Names and shapes are written down from the files that were published, not worked out by our tables.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

VOCABULARY, LAYERS = 96, 2
PROMPT, MASK = 5, 3  # tokens of the prompts that GLM and ChatGLM-6B are given, and where the mask token stands in them


def save(directory: Path, config: dict, tensors: dict[str, np.ndarray], shards: int = 1) -> Path:
    """config.json and weights, as transformers writes them: one safetensors file, or several with an index."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
        return directory
    names, places = list(tensors), {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[number::shards]}
        save_file(part, directory / file, metadata={"format": "pt"})
        places |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": places}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


class Random:
    """Random tensors under names: weights of matrices are [outputs, inputs]."""

    def __init__(self, seed: int = 0):
        self.generator = np.random.default_rng(seed)
        self.tensors: dict[str, np.ndarray] = {}

    def matrix(self, name: str, outputs: int, inputs: int, bias: bool = False) -> None:
        self._add(f"{name}.weight", (outputs, inputs), 1.0 / np.sqrt(inputs))
        if bias:
            self._add(f"{name}.bias", (outputs,), 0.1)

    def table(self, name: str, rows: int, columns: int) -> None:
        self._add(f"{name}.weight", (rows, columns), 1.0)

    def norm(self, name: str, size: int, bias: bool = False) -> None:
        self._add(f"{name}.weight", (size,), 0.1, around=1.0)
        if bias:
            self._add(f"{name}.bias", (size,), 0.1)

    def bias(self, name: str, experts: int) -> None:
        """For the choice of experts: as large as their shares."""
        self._add(name, (1, experts), 0.2)

    def _add(self, name: str, shape: tuple, scale: float, around: float = 0.0) -> None:
        values = around + scale * self.generator.standard_normal(shape)
        self.tensors[name] = values.astype(np.float32)


def llama(**changes) -> tuple[dict, dict]:
    """LLaMA with grouped queries. hidden 48: 6 heads of 8."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    } | changes
    return config, _gated_decoder(config, qkv_bias=False)


def qwen2(**changes) -> tuple[dict, dict]:
    config, _ = llama()
    config |= {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 4096} | changes
    return config, _gated_decoder(config, qkv_bias=True)


def qwen3(**changes) -> tuple[dict, dict]:
    """6 heads of 16, twice the hidden size."""
    config, _ = llama()
    config |= {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16, "attention_bias": False}
    config |= {"use_sliding_window": False, "sliding_window": None} | changes
    return config, _gated_decoder(config, qkv_bias=False)


def ernie4_5(**changes) -> tuple[dict, dict]:
    """6 heads of 16, twice the hidden size; tied, as 0.3B is."""
    config, _ = llama(tie_word_embeddings=True)
    config |= {"architectures": ["Ernie4_5ForCausalLM"], "model_type": "ernie4_5", "head_dim": 16, "use_bias": False}
    config |= changes
    return config, _gated_decoder(config, qkv_bias=False)


def mistral(**changes) -> tuple[dict, dict]:
    config, _ = llama()
    config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None} | changes
    return config, _gated_decoder(config, qkv_bias=False)


def mixtral(**changes) -> tuple[dict, dict]:
    """Each token to 2 of 4 experts."""
    config, _ = llama()
    config |= {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "sliding_window": None}
    config |= {"num_local_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02} | changes
    return config, _gated_decoder(config, qkv_bias=False)


def qwen2_moe(**changes) -> tuple[dict, dict]:
    """Each token to 2 of 5 experts, their weights as they are, and to a wider one."""
    config, _ = llama()
    config |= {"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "use_sliding_window": False}
    config |= {"num_experts": 5, "num_experts_per_tok": 2, "norm_topk_prob": False, "moe_intermediate_size": 24}
    config |= {"shared_expert_intermediate_size": 56, "decoder_sparse_step": 1, "mlp_only_layers": []} | changes
    return config, _gated_decoder(config, qkv_bias=True)


def qwen3_moe(**changes) -> tuple[dict, dict]:
    """Each token to 2 of 5 experts, whose weights sum to 1; 6 heads of 16."""
    config, _ = qwen3()
    config |= {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "norm_topk_prob": True}
    config |= {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    config |= {"decoder_sparse_step": 1, "mlp_only_layers": []} | changes
    return config, _gated_decoder(config, qkv_bias=False)


def ernie4_5_moe(**changes) -> tuple[dict, dict]:
    """Layer 0 without experts; then each token to 2 of 5, chosen with a bias, and to 2 more as one MLP. With a layer
    that predicts a second token."""
    config, _ = ernie4_5()
    config |= {"architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "moe_num_experts": 5}
    config |= {"moe_k": 2, "moe_intermediate_size": 24, "moe_num_shared_experts": 2, "moe_layer_start_index": 1}
    config |= {"moe_layer_end_index": LAYERS - 1, "moe_layer_interval": 1, "moe_norm_min": 1e-12} | changes
    tensors, random = _gated_decoder(config, qkv_bias=False), Random(1)
    random.matrix("model.mtp_linear_proj.0", config["hidden_size"], 2 * config["hidden_size"])
    random.norm("model.mtp_block.0.input_layernorm", config["hidden_size"])
    return config, tensors | random.tensors


def _gated_decoder(config: dict, qkv_bias: bool) -> dict:
    hidden, ffn, random = config["hidden_size"], config["intermediate_size"], Random()
    size = config.get("head_dim", hidden // config["num_attention_heads"])
    query, key_value = size * config["num_attention_heads"], size * config["num_key_value_heads"]
    random.table("model.embed_tokens", config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        random.norm(f"{layer}.input_layernorm", hidden)
        random.matrix(f"{layer}.self_attn.q_proj", query, hidden, qkv_bias)
        random.matrix(f"{layer}.self_attn.k_proj", key_value, hidden, qkv_bias)
        random.matrix(f"{layer}.self_attn.v_proj", key_value, hidden, qkv_bias)
        random.matrix(f"{layer}.self_attn.o_proj", hidden, query)
        if config["model_type"].startswith("qwen3"):
            random.norm(f"{layer}.self_attn.q_norm", size)
            random.norm(f"{layer}.self_attn.k_norm", size)
        random.norm(f"{layer}.post_attention_layernorm", hidden)
        if config["model_type"] == "mixtral":
            _experts(random, f"{layer}.block_sparse_moe", config)
        elif config["model_type"] == "qwen2_moe":
            random.matrix(f"{layer}.mlp.gate", config["num_experts"], hidden)
            for expert in range(config["num_experts"]):
                _gated(random, f"{layer}.mlp.experts.{expert}", hidden, config["moe_intermediate_size"])
            _gated(random, f"{layer}.mlp.shared_expert", hidden, config["shared_expert_intermediate_size"])
            random.matrix(f"{layer}.mlp.shared_expert_gate", 1, hidden)
        elif config["model_type"] == "qwen3_moe" or i and config["model_type"] == "ernie4_5_moe":
            count = config.get("num_experts") or config["moe_num_experts"]
            random.matrix(f"{layer}.mlp.gate", count, hidden)
            for expert in range(count):
                _gated(random, f"{layer}.mlp.experts.{expert}", hidden, config["moe_intermediate_size"])
            if config["model_type"] == "ernie4_5_moe":
                random.bias(f"{layer}.mlp.moe_statics.e_score_correction_bias", count)
                width = config["moe_num_shared_experts"] * config["moe_intermediate_size"]
                _gated(random, f"{layer}.mlp.shared_experts", hidden, width)
        else:
            _gated(random, f"{layer}.mlp", hidden, ffn)
    random.norm("model.norm", hidden)
    if not config["tie_word_embeddings"]:
        random.matrix("lm_head", config["vocab_size"], hidden)
    return random.tensors


def _gated(random: Random, name: str, hidden: int, ffn: int) -> None:
    random.matrix(f"{name}.gate_proj", ffn, hidden)
    random.matrix(f"{name}.up_proj", ffn, hidden)
    random.matrix(f"{name}.down_proj", hidden, ffn)


def _experts(random: Random, block: str, config: dict) -> None:
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    random.matrix(f"{block}.gate", config["num_local_experts"], hidden)
    for expert in range(config["num_local_experts"]):
        random.matrix(f"{block}.experts.{expert}.w1", ffn, hidden)
        random.matrix(f"{block}.experts.{expert}.w2", hidden, ffn)
        random.matrix(f"{block}.experts.{expert}.w3", ffn, hidden)


def baichuan(alibi: bool, **changes) -> tuple[dict, dict]:
    """Baichuan-13B (ALiBi) or 7B: fused query, key and value. 6 heads are no power of two, as 40 of 13B are not."""
    config, _ = llama(num_key_value_heads=6, rms_norm_eps=1e-6)
    tensors = _gated_decoder(config, qkv_bias=False)
    for i in range(LAYERS):
        attention = f"model.layers.{i}.self_attn"
        parts = [tensors.pop(f"{attention}.{one}_proj.weight") for one in "qkv"]
        tensors[f"{attention}.W_pack.weight"] = np.concatenate(parts)
        if not alibi:
            tensors[f"{attention}.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    for key in ("num_key_value_heads", "rope_theta", "max_position_embeddings"):
        config.pop(key)
    config |= {"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "pad_token_id": 0}
    config |= {"auto_map": {"AutoModelForCausalLM": "modeling_baichuan.BaichuanForCausalLM"}}
    config |= {"model_max_length": 64} if alibi else {"max_position_embeddings": 64}
    return config | changes, tensors


def chatglm(**changes) -> tuple[dict, dict]:
    """ChatGLM-6B: bos (<sop>) 90, [gMASK] 91, [MASK] 92."""
    config = {
        "architectures": ["ChatGLMModel"],
        "model_type": "chatglm",
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "inner_hidden_size": 128,
        "num_layers": LAYERS,
        "num_attention_heads": 4,
        "max_sequence_length": 64,
        "layernorm_epsilon": 1e-5,
        "position_encoding_2d": True,
        "quantization_bit": 0,
        "bos_token_id": 90,
        "eos_token_id": 93,
        "gmask_token_id": 91,
        "mask_token_id": 92,
        "pad_token_id": 3,
    } | changes
    random = Random()
    random.table("transformer.word_embeddings", config["vocab_size"], 32)
    for i in range(LAYERS):
        _glm_layer(random, f"transformer.layers.{i}", 32)
        random.tensors[f"transformer.layers.{i}.attention.rotary_emb.inv_freq"] = np.ones(2, np.float32)
    random.norm("transformer.final_layernorm", 32, bias=True)
    random.tensors["lm_head.weight"] = random.tensors["transformer.word_embeddings.weight"].copy()
    return config, random.tensors


def glm(**changes) -> tuple[dict, dict]:
    """GLM-10B and its kin, saved with the prefix of GLMForConditionalGeneration."""
    config = {
        "architectures": ["GLMForConditionalGeneration"],
        "model_type": "glm",
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_layers": LAYERS,
        "num_attention_heads": 4,
        "max_sequence_length": 64,
        "block_position_encoding": True,
        "attention_scale": 1.0,
        "embedding_dropout_prob": 0.1,
        "attention_dropout_prob": 0.1,
        "output_dropout_prob": 0.1,
    } | changes
    random, positions = Random(), config["max_sequence_length"] + 1
    random.table("glm.word_embeddings", config["vocab_size"], 32)
    random.table("glm.transformer.position_embeddings", positions, 32)
    random.table("glm.transformer.block_position_embeddings", positions, 32)
    for i in range(LAYERS):
        _glm_layer(random, f"glm.transformer.layers.{i}", 32)
    random.norm("glm.transformer.final_layernorm", 32, bias=True)
    return config, random.tensors


def _glm_layer(random: Random, layer: str, hidden: int, attention: str = "attention") -> None:
    random.norm(f"{layer}.input_layernorm", hidden, bias=True)
    random.matrix(f"{layer}.{attention}.query_key_value", 3 * hidden, hidden, bias=True)
    random.matrix(f"{layer}.{attention}.dense", hidden, hidden, bias=True)
    random.norm(f"{layer}.post_attention_layernorm", hidden, bias=True)
    random.matrix(f"{layer}.mlp.dense_h_to_4h", 4 * hidden, hidden, bias=True)
    random.matrix(f"{layer}.mlp.dense_4h_to_h", hidden, 4 * hidden, bias=True)


def chatglm2() -> tuple[dict, dict]:
    """ChatGLM2-6B: 4 query heads, 2 key and value groups."""
    config = {
        "architectures": ["ChatGLMModel"],
        "model_type": "chatglm",
        "padded_vocab_size": VOCABULARY,
        "hidden_size": 32,
        "ffn_hidden_size": 48,
        "kv_channels": 8,
        "num_layers": LAYERS,
        "num_attention_heads": 4,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "seq_length": 64,
        "layernorm_epsilon": 1e-5,
        "add_bias_linear": False,
        "add_qkv_bias": True,
        "rmsnorm": True,
        "original_rope": True,
        "post_layer_norm": True,
        "apply_residual_connection_post_layernorm": False,
        "quantization_bit": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    random = Random()
    random.table("transformer.embedding.word_embeddings", VOCABULARY, 32)
    random.tensors["transformer.rotary_pos_emb.inv_freq"] = np.ones(2, np.float32)
    for i in range(LAYERS):
        layer = f"transformer.encoder.layers.{i}"
        random.norm(f"{layer}.input_layernorm", 32)
        random.matrix(f"{layer}.self_attention.query_key_value", 32 + 2 * 2 * 8, 32, bias=True)
        random.matrix(f"{layer}.self_attention.dense", 32, 32)
        random.norm(f"{layer}.post_attention_layernorm", 32)
        random.matrix(f"{layer}.mlp.dense_h_to_4h", 2 * 48, 32)
        random.matrix(f"{layer}.mlp.dense_4h_to_h", 32, 48)
    random.norm("transformer.encoder.final_layernorm", 32)
    random.matrix("transformer.output_layer", VOCABULARY, 32)
    return config, random.tensors


def bloom() -> tuple[dict, dict]:
    config = {
        "architectures": ["BloomForCausalLM"],
        "model_type": "bloom",
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "n_layer": LAYERS,
        "n_head": 4,
        "layer_norm_epsilon": 1e-5,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,
    }
    random = Random()
    random.table("word_embeddings", VOCABULARY, 32)
    random.norm("word_embeddings_layernorm", 32, bias=True)
    for i in range(LAYERS):
        _glm_layer(random, f"h.{i}", 32, "self_attention")
    random.norm("ln_f", 32, bias=True)
    return config, random.tensors


def opt(**changes) -> tuple[dict, dict]:
    config = {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "activation_function": "relu",
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "ffn_dim": 128,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "do_layer_norm_before": True,
        "bos_token_id": 2,
        "eos_token_id": 2,
        "pad_token_id": 1,
    } | changes
    random = Random()
    random.table("model.decoder.embed_tokens", config["vocab_size"], 32)
    random.table("model.decoder.embed_positions", config["max_position_embeddings"] + 2, 32)
    for i in range(LAYERS):
        layer = f"model.decoder.layers.{i}"
        for projection in ("k_proj", "v_proj", "q_proj", "out_proj"):
            random.matrix(f"{layer}.self_attn.{projection}", 32, 32, bias=True)
        random.norm(f"{layer}.self_attn_layer_norm", 32, bias=True)
        random.matrix(f"{layer}.fc1", 128, 32, bias=True)
        random.matrix(f"{layer}.fc2", 32, 128, bias=True)
        random.norm(f"{layer}.final_layer_norm", 32, bias=True)
    random.norm("model.decoder.final_layer_norm", 32, bias=True)
    return config, random.tensors


ALL = {
    "llama": llama,
    "qwen2": qwen2,
    "baichuan-7b": lambda: baichuan(alibi=False),
    "baichuan-13b": lambda: baichuan(alibi=True),
    "chatglm": chatglm,
    "chatglm2": chatglm2,
    "glm": glm,
    "bloom": bloom,
    "opt": opt,
    "qwen3": qwen3,
    "mistral": mistral,
    "mixtral": mixtral,
    "qwen2-moe": qwen2_moe,
    "ernie4_5": ernie4_5,
    "qwen3-moe": qwen3_moe,
    "ernie4_5-moe": ernie4_5_moe,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LINEAR = {"rope_type": "linear", "factor": 4.0}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}  # as Qwen2.5's page has it
YARN_WITH_ALL = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 4.0,
    "beta_slow": 0.5,
    "mscale": 1.0,
    "mscale_all_dim": 0.5,
    "truncate": False,
}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0}
# What transformers makes of our exports.
IN_TRANSFORMERS = {
    "llama": llama,  # grouped queries, rope_theta 50000
    "llama-tied": lambda: llama(tie_word_embeddings=True),
    "llama3": lambda: llama(rope_scaling=LLAMA3),
    "llama-linear": lambda: llama(rope_scaling=LINEAR),
    "llama-dynamic": lambda: llama(max_position_embeddings=16, rope_scaling=DYNAMIC),  # passed while it answers
    "qwen2": qwen2,
    "qwen2-tied": lambda: qwen2(tie_word_embeddings=True),
    "qwen2-yarn": lambda: qwen2(max_position_embeddings=32768, rope_scaling=YARN),
    "qwen3-yarn": lambda: qwen3(rope_scaling=YARN_WITH_ALL),
    "qwen3": qwen3,
    "qwen3-tied": lambda: qwen3(tie_word_embeddings=True),
    "bloom": bloom,
    "opt": opt,
    "mistral": mistral,
    "mixtral": mixtral,
    "qwen2-moe": qwen2_moe,
    "qwen2-moe-normalized": lambda: qwen2_moe(norm_topk_prob=True),
    "baichuan-7b": lambda: baichuan(alibi=False),
    "ernie4_5": ernie4_5,
    "ernie4_5-untied": lambda: ernie4_5(tie_word_embeddings=False),
    "qwen3-moe": qwen3_moe,
    "qwen3-moe-yarn": lambda: qwen3_moe(norm_topk_prob=False, rope_scaling=YARN_WITH_ALL),
    "ernie4_5-moe": ernie4_5_moe,
    "ernie4_5-moe-untied": lambda: ernie4_5_moe(tie_word_embeddings=False, moe_num_shared_experts=1, moe_norm_min=0.5),
}
MIXTURES = ("mixtral", "qwen2-moe", "qwen3-moe", "ernie4_5-moe")  # of experts, with an auxiliary loss
WITH_GRADIENTS = (*MIXTURES, "ernie4_5")
SAVED_AS_BIN = ("llama", "opt")  # in the format of torch, too
WITH_ADAPTER = (
    "llama",
    "qwen2",
    "qwen3",
    "bloom",
    "opt",
    "mistral",
    "mixtral",
    "qwen2-moe",
    "ernie4_5",
    "qwen3-moe",
    "ernie4_5-moe",
)
