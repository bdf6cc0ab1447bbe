"""Tensor names and configurations of GGUF files and of Hugging Face's for the architectures that both sides know.

Mistral and Mixtral are `llama` in GGUF: they compute what a LLaMA does, Mixtral with experts. Sources: gguf-py's tables
of names, and the converter of llama.cpp (convert_hf_to_gguf.py).
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from launch.errors import UserError
from launch.families.parameters import head_size
from launch.models.rotary_scaling import ORIGINAL, inverse_frequencies
from launch.weights.gguf_file import GGUFFile, GGUFTensor

# Architecture in GGUF -> model_type in a config.json; `llama` with experts is a Mixtral.
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen2moe": "qwen2_moe"}
ARCHITECTURES |= {"qwen3moe": "qwen3_moe", "ernie4_5": "ernie4_5", "ernie4_5-moe": "ernie4_5_moe"}
MODEL_TYPES = {theirs: name for name, theirs in ARCHITECTURES.items()} | {"mistral": "llama", "mixtral": "llama"}
FREQUENCIES = "rope_freqs.weight"  # what LLaMA 3 divides its frequencies by
SIZES = {"context_length": "max_position_embeddings", "embedding_length": "hidden_size"}
SIZES |= {"block_count": "num_hidden_layers", "feed_forward_length": "intermediate_size"}
SIZES |= {"attention.head_count": "num_attention_heads"}
USED = {"expert_used_count": "num_experts_per_tok"}
MOE = {"expert_count": "num_experts", "expert_feed_forward_length": "moe_intermediate_size"}
EXPERT_SIZES = {"mixtral": USED | {"expert_count": "num_local_experts"}, "qwen3_moe": USED | MOE}
EXPERT_SIZES["qwen2_moe"] = USED | MOE | {"expert_shared_feed_forward_length": "shared_expert_intermediate_size"}
EXPERT_SIZES["ernie4_5_moe"] = {
    "expert_used_count": "moe_k",
    "expert_count": "moe_num_experts",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_count": "moe_num_shared_experts",
    "leading_dense_block_count": "moe_layer_start_index",
    "interleave_moe_layer_step": "moe_layer_interval",
}
# What llama.cpp computes, whatever the model's configuration says: the weights of a token's experts sum to 1.
NORMALIZED = {"qwen2_moe": False, "qwen3_moe": True}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3_FACTORS, LLAMA3_LENGTH = (8.0, 32.0, 16.0, 4.0, 2.0), 8192  # of the published models; tried in turn
VECTORS = ("ffn_gate_inp_shexp.weight", "exp_probs_b.bias")  # matrices of one row in Hugging Face's files
ROLES = {"bos": "bos", "eos": "eos", "pad": "padding"}


@cache
def _names(architecture: str, layers: int):
    from gguf import MODEL_ARCH, get_tensor_name_map

    return get_tensor_name_map(MODEL_ARCH[architecture.upper().replace("-", "_")], layers)


def gguf_name(name: str, config: dict) -> tuple[str, int | None]:
    """Return GGUF's name of one of Hugging Face's tensors, and the expert's number within it."""
    expert = re.search(r"(?<=\.experts\.)\d+\.", name)
    whole = name[: expert.start()] + name[expert.end() :] if expert else name
    whole = whole.replace("correction_bias", "correction.bias")  # of ERNIE's router
    names = _names(MODEL_TYPES[config["model_type"]], config["num_hidden_layers"])
    found = names.get_name(whole, (".weight", ".bias"))
    assert found, f"{name} is a tensor of these architectures"
    return found, int(expert[0][:-1]) if expert else None


def turned_heads(name: str, config: dict) -> int:
    """Return the heads of a GGUF tensor whose rows are in llama.cpp's order; 0: the usual order."""
    if MODEL_TYPES[config["model_type"]] != "llama":
        return 0
    part = name.split(".")[2] if name.startswith("blk.") else ""
    heads = config["num_attention_heads"]
    return {"attn_q": heads, "attn_k": config.get("num_key_value_heads") or heads}.get(part, 0)


def read_config(file: GGUFFile) -> dict:
    """Return the values of a Hugging Face config.json. Raises UserError for what none of the families computes."""
    path, architecture = file.path, file.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
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
        "norm_topk_prob": NORMALIZED.get(model_type, False),
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
    """Return rope_scaling, where positions are scaled. llama.cpp takes a factor without a type as linear."""
    factor = float(values.get("rope.scaling.factor", values.get("rope.scale_linear", 0.0)))
    kind = values.metadata.get(f"{values.architecture}.rope.scaling.type", "linear" if factor else "none")
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
    block = {"rope_type": kind, "factor": factor}
    original = values.whole("rope.scaling.original_context_length", config["max_position_embeddings"])
    positions = {"max_position_embeddings": original} if kind == "linear" else {}
    return {"rope_scaling": block | {ORIGINAL: original}, **positions}


def frequency_factors(config: dict, block: dict) -> np.ndarray:
    """Return what llama.cpp divides the frequencies of LLaMA 3's positions by, float32 [head size / 2]."""
    size, theta = head_size(config), config["rope_theta"]
    plain = inverse_frequencies(size, theta, block | {"rope_type": "default"}, 1)
    return (np.asarray(plain) / np.asarray(inverse_frequencies(size, theta, block, 1))).astype(np.float32)


def _tokens(file: GGUFFile) -> dict:
    roles = {role: file.metadata.get(f"tokenizer.ggml.{key}_token_id") for role, key in ROLES.items()}
    ids: dict = {f"{role}_token_id": number for role, number in roles.items() if type(number) is int}
    turn = file.metadata.get("tokenizer.ggml.eot_token_id")
    if type(turn) is int and turn != ids.get("eos_token_id"):
        ids["eos_token_id"] = [ids["eos_token_id"], turn] if "eos_token_id" in ids else turn
    return ids


def huggingface_tensors(file: GGUFFile, config: dict, expected: Iterable[str]) -> dict[str, GGUFTensor]:
    """Return the expected tensors, which have Hugging Face's names, as far as the file has them, and its others.

    config: As read_config gives it.
    """
    found, used = {}, {FREQUENCIES}
    for theirs in expected:
        name, expert = gguf_name(theirs, config)
        tensor = file.tensors.get(name)
        if tensor is None or (expert is not None and (len(tensor.shape) != 3 or expert >= tensor.shape[0])):
            continue
        used.add(name)
        if expert is not None:
            found[theirs] = tensor.expert(expert)
        elif name.endswith(VECTORS) and len(tensor.shape) == 1:
            found[theirs] = replace(tensor, shape=(1, *tensor.shape))
        else:
            # 0 heads where they do not divide the rows: the shapes are refused later, by name.
            heads, rows = turned_heads(name, config), tensor.shape[0] if len(tensor.shape) == 2 else 0
            fits = heads and rows and rows % (2 * heads) == 0
            found[theirs] = replace(tensor, heads=heads if fits else 0)
    return found | {name: tensor for name, tensor in file.tensors.items() if name not in used}


def require_one_file(path: Path) -> Path:
    """Return the GGUF file that a path means: itself, or the only one of a folder.

    Raises UserError for a part of a file, and for a folder with several.
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
