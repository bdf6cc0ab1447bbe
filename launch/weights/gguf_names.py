"""Tensor names and configurations of GGUF files and of Hugging Face's for the architectures that both sides know.

Mistral and Mixtral are `llama` in GGUF: they compute what a LLaMA does, Mixtral with experts. Sources: gguf-py's tables
of names, and the converter of llama.cpp (convert_hf_to_gguf.py).
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from launch.errors import UserError
from launch.families.parameters import head_size
from launch.models.rotary_scaling import ORIGINAL, inverse_frequencies
from launch.weights.gguf_file import GGUFFile, GGUFTensor

# Architecture in GGUF -> model_type in a config.json; `llama` with experts is a Mixtral.
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen2moe": "qwen2_moe"}
MODEL_TYPES = {theirs: name for name, theirs in ARCHITECTURES.items()} | {"mistral": "llama", "mixtral": "llama"}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
EXPERTS = {
    "qwen2_moe": {
        "ffn_gate_inp": "mlp.gate",
        "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
        "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
        "ffn_up_shexp": "mlp.shared_expert.up_proj",
        "ffn_down_shexp": "mlp.shared_expert.down_proj",
        "ffn_gate_exps": "mlp.experts.{}.gate_proj",
        "ffn_up_exps": "mlp.experts.{}.up_proj",
        "ffn_down_exps": "mlp.experts.{}.down_proj",
    },
    "mixtral": {
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
    },
}
FREQUENCIES = "rope_freqs.weight"  # what LLaMA 3 divides its frequencies by
SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
EXPERT_SIZES = {
    "mixtral": {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    "qwen2_moe": {
        "expert_count": "num_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    },
}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3_FACTORS, LLAMA3_LENGTH = (8.0, 32.0, 16.0, 4.0, 2.0), 8192  # of the published models; tried in turn


def layer_names(model_type: str) -> dict[str, str]:
    """Return GGUF's and Hugging Face's name of each tensor of a layer; {} stands for an expert's number."""
    return LAYER | EXPERTS.get(model_type, {})


def gguf_name(name: str, model_type: str) -> tuple[str, int | None]:
    """Return GGUF's name of one of Hugging Face's tensors, and the expert's number within it."""
    module, _, kind = name.rpartition(".")
    for theirs, ours in OUTER.items():
        if module == ours:
            return f"{theirs}.{kind}", None
    _, _, layer, part = module.split(".", 3)
    expert = re.search(r"(?<=experts\.)\d+", part)
    plain = part.replace(expert[0], "{}", 1) if expert else part
    theirs = next(key for key, value in layer_names(model_type).items() if value == plain)
    return f"blk.{layer}.{theirs}.{kind}", int(expert[0]) if expert else None


def turned_heads(name: str, config: dict) -> int:
    """Return the heads of a GGUF tensor whose rows are in llama.cpp's order; 0: the usual order."""
    if MODEL_TYPES[config["model_type"]] != "llama":
        return 0
    part = name.split(".")[2] if name.startswith("blk.") else ""
    heads = config["num_attention_heads"]
    return {"attn_q": heads, "attn_k": config.get("num_key_value_heads") or heads}.get(part, 0)


def read_config(file: GGUFFile) -> dict:
    """Return the values of a Hugging Face config.json.

    Raises:
        UserError: For what none of the families computes.
    """
    path, architecture = file.path, file.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UserError(
            f"{path}: general.architecture: found {architecture!r}, allowed: {', '.join(ARCHITECTURES)}. Import the "
            "model's original repository in Hugging Face's format."
        )
    values = _Values(file, architecture)
    model_type = ARCHITECTURES[architecture]
    if architecture == "llama" and values.get("expert_count", 0):
        model_type = "mixtral"
    word = file.tensors.get("token_embd.weight")
    if word is None:
        raise UserError(f"{path}: no token_embd.weight: not a language model, or one of several parts.")
    sizes = SIZES | EXPERT_SIZES.get(model_type, {})
    config: dict = {theirs: values.whole(key) for key, theirs in sizes.items()}
    heads = config["num_attention_heads"]
    config |= {
        "model_type": model_type,
        "num_key_value_heads": values.whole("attention.head_count_kv", heads),
        "head_dim": values.whole("attention.key_length", config["hidden_size"] // heads),
        "rms_norm_eps": _shortest(values.get("attention.layer_norm_rms_epsilon", 1e-5)),
        "rope_theta": _shortest(values.get("rope.freq_base", 10000.0)),
        "vocab_size": word.shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "norm_topk_prob": False,  # llama.cpp's Qwen2-MoE
    }
    if (width := values.whole("rope.dimension_count", config["head_dim"])) != config["head_dim"]:
        raise UserError(f"{path}: rope.dimension_count: found {width}, allowed: that of a head, {config['head_dim']}.")
    return config | _scaling(file, values, config) | _tokens(file)


class _Values:
    """The metadata of an architecture. Raises UserError for what is missing or no number."""

    def __init__(self, file: GGUFFile, architecture: str):
        self.path, self.metadata, self.architecture = file.path, file.metadata, architecture

    def get(self, key: str, default):
        found = self.metadata.get(f"{self.architecture}.{key}", default)
        if type(found) is not type(default) and not (
            isinstance(found, int | float) and isinstance(default, int | float)
        ):
            raise UserError(f"{self.path}: {self.architecture}.{key}: found {found!r}, allowed: one number.")
        return found

    def whole(self, key: str, default: int | None = None) -> int:
        found = self.metadata.get(f"{self.architecture}.{key}", default)
        if type(found) is not int or found <= 0:
            raise UserError(
                f"{self.path}: {self.architecture}.{key}: found {found!r}, allowed: a whole number above 0."
            )
        return found


def _shortest(value: float) -> float:
    """Return the shortest decimal number that is this float32: 1e-05 instead of 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _scaling(file: GGUFFile, values: _Values, config: dict) -> dict:
    """Return rope_scaling, where positions are scaled."""
    kind = values.metadata.get(f"{values.architecture}.rope.scaling.type", "none")
    if frequencies := file.tensors.get(FREQUENCIES):
        found = frequencies.open()
        for factor in LLAMA3_FACTORS:
            block = LLAMA3 | {"factor": factor, ORIGINAL: LLAMA3_LENGTH}
            if np.allclose(found, frequency_factors(config, block), rtol=1e-3):
                return {"rope_scaling": block}
        raise UserError(f"{file.path}: {FREQUENCIES}: found factors that no published LLaMA 3 has.")
    if kind == "none":
        return {}
    if kind not in ("linear", "yarn"):
        raise UserError(f"{file.path}: rope.scaling.type: found {kind!r}, allowed: none, linear, yarn.")
    block = {"rope_type": kind, "factor": float(values.get("rope.scaling.factor", 0.0))}
    original = values.whole("rope.scaling.original_context_length", config["max_position_embeddings"])
    positions = {"max_position_embeddings": original} if kind == "linear" else {}
    return {"rope_scaling": block | {ORIGINAL: original}, **positions}


def frequency_factors(config: dict, block: dict) -> np.ndarray:
    """Return float32 [head size / 2]: llama.cpp divides the frequencies of LLaMA 3's positions by these."""
    size, theta = head_size(config), config["rope_theta"]
    plain = inverse_frequencies(size, theta, block | {"rope_type": "default"}, 1)
    return (np.asarray(plain) / np.asarray(inverse_frequencies(size, theta, block, 1))).astype(np.float32)


def _tokens(file: GGUFFile) -> dict:
    roles = {role: file.metadata.get(f"tokenizer.ggml.{key}_token_id") for role, key in ROLES.items()}
    ids: dict = {f"{role}_token_id": number for role, number in roles.items() if type(number) is int}
    turn = file.metadata.get("tokenizer.ggml.eot_token_id")
    if type(turn) is int and turn != ids.get("eos_token_id", turn):
        ids["eos_token_id"] = [ids["eos_token_id"], turn]
    return ids


ROLES = {"bos": "bos", "eos": "eos", "pad": "padding"}


def huggingface_tensors(file: GGUFFile, config: dict) -> dict[str, GGUFTensor]:
    """Return all tensors by Hugging Face's names. Tensors without a known name keep theirs."""
    found, layer = {}, layer_names(config["model_type"])
    for name, tensor in file.tensors.items():
        module, _, kind = name.rpartition(".")
        block = re.fullmatch(r"blk\.(\d+)\.(\w+)", module)
        if name == FREQUENCIES:
            continue
        if not block or block[2] not in layer:
            found[f"{OUTER[module]}.{kind}" if module in OUTER else name] = tensor
            continue
        tensor = replace(tensor, heads=_fitting(turned_heads(name, config), tensor))
        theirs = f"model.layers.{block[1]}.{layer[block[2]]}.{kind}"
        if "{}" in theirs and len(tensor.shape) == 3:
            found |= {theirs.format(number): tensor.expert(number) for number in range(tensor.shape[0])}
        elif block[2] == "ffn_gate_inp_shexp" and len(tensor.shape) == 1:
            found[theirs] = replace(tensor, shape=(1, *tensor.shape))
        else:
            found[theirs] = tensor
    return found


def _fitting(heads: int, tensor: GGUFTensor) -> int:
    """Return the heads, or 0 where they do not divide the rows: the shapes are refused later, by name."""
    rows = tensor.shape[0] if len(tensor.shape) == 2 else 0
    return heads if heads and rows and rows % (2 * heads) == 0 else 0


def require_one_file(path: Path) -> Path:
    """Return the GGUF file that a path means: itself, or the only one of a folder.

    Raises:
        UserError: For a part of a file, and for a folder with several.
    """
    found = sorted(path.glob("*.gguf")) if path.is_dir() else [path]
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise UserError(f"{path}: {len(found)} GGUF files: {names}. Name one: MODEL={found[0]}")
    if re.search(r"-\d{5}-of-\d{5}\.gguf$", found[0].name):
        raise UserError(
            f"{found[0]}: one part of a model. Join the parts first: llama-gguf-split --merge, of llama.cpp; or import "
            "the model's original repository in Hugging Face's format."
        )
    return found[0]
