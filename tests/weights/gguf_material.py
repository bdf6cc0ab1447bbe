"""GGUF files of tiny models, written by the package gguf, with its own names of tensors."""

from pathlib import Path

import numpy as np
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, get_tensor_name_map, quantize

ARCHITECTURES = {"llama": MODEL_ARCH.LLAMA, "mixtral": MODEL_ARCH.LLAMA, "mistral": MODEL_ARCH.LLAMA}
ARCHITECTURES |= {"qwen2": MODEL_ARCH.QWEN2, "qwen3": MODEL_ARCH.QWEN3, "qwen2_moe": MODEL_ARCH.QWEN2MOE}
ARCHITECTURES |= {"qwen3_moe": MODEL_ARCH.QWEN3MOE, "ernie4_5": MODEL_ARCH.ERNIE4_5}
ARCHITECTURES |= {"ernie4_5_moe": MODEL_ARCH.ERNIE4_5_MOE}
TOKENS = ["<s>", "<|im_end|>", *(chr(code) for code in range(33, 125)), "ab", "abc"]
MERGES, KINDS = ["a b", "ab c"], [3, 3] + [1] * (len(TOKENS) - 2)
ENDS = {"bos": 0, "eos": 1}
TEMPLATE = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"


def to_llama_cpp(rows: np.ndarray, heads: int) -> np.ndarray:
    """Return rows of queries or keys as llama.cpp turns them: both elements of a pair beside each other."""
    size = len(rows) // heads
    places = ((head, pair, half) for head in range(heads) for pair in range(size // 2) for half in (0, 1))
    order = [head * size + half * size // 2 + pair for head, pair, half in places]
    return rows[order]


def write(path: Path, config: dict, tensors: dict, kind: str = "F32", **metadata) -> Path:
    """Write a model whose tensors have Hugging Face's names. kind: of matrices whose rows are whole blocks."""
    architecture = ARCHITECTURES[config["model_type"]]
    writer = GGUFWriter(path, MODEL_ARCH_NAMES[architecture])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
    if experts := config.get("num_local_experts") or config.get("num_experts") or config.get("moe_num_experts"):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.get("num_experts_per_tok") or config["moe_k"])
    if "moe_k" in config:
        writer.add_interleave_moe_layer_step(config["moe_layer_interval"])
        writer.add_leading_dense_block_count(config["moe_layer_start_index"])
        writer.add_expert_shared_count(config["moe_num_shared_experts"])
        width = config["moe_num_shared_experts"] * config["moe_intermediate_size"]
        writer.add_expert_shared_feed_forward_length(width)
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    texts = {"model": "gpt2", "pre": "gpt-2", "tokens": TOKENS, "token_type": KINDS, "merges": MERGES} | {
        f"{role}_token_id": number for role, number in ENDS.items()
    }
    for key, value in (texts | metadata).items():
        add = {str: writer.add_string, int: writer.add_uint32, bool: writer.add_bool}.get(type(value), writer.add_array)
        add(f"tokenizer.ggml.{key}", value)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in _stacked(config, tensors).items():
        names = get_tensor_name_map(architecture, config["num_hidden_layers"])
        whole = kind in ("F16", "BF16") or tensor.shape[-1] % 32 == 0
        plain = tensor.ndim == 1 or name.endswith(".gate.weight")  # a router
        as_kind = GGMLQuantizationType["F32" if plain or not whole else kind]
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), quantize(tensor, as_kind), raw_dtype=as_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _stacked(config: dict, tensors: dict) -> dict:
    """Return the tensors as llama.cpp has them: those of all experts in one, queries and keys in its order."""
    found: dict = {}
    turned = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, tensor in tensors.items():
        if ".mtp_" in name:  # llama.cpp has none
            continue
        name = name.replace("correction_bias", "correction.bias")
        heads = turned.get(name.split(".")[-2]) if ARCHITECTURES[config["model_type"]] is MODEL_ARCH.LLAMA else None
        tensor = to_llama_cpp(tensor, heads) if heads else tensor
        before, found_expert, behind = name.partition(".experts.")
        if found_expert:
            found.setdefault(f"{before}.experts.{behind.split('.', 1)[1]}", []).append(tensor)
        else:
            found[name] = tensor.squeeze()
    return {name: np.stack(tensor) if isinstance(tensor, list) else tensor for name, tensor in found.items()}
