"""Random models made, saved and run by transformers: what tests/weights/test_against_transformers.py compares with.

    python -m tests.families.with_transformers DIRECTORY IDS.npy

writes DIRECTORY/NAME, a model directory with a tokenizer where the case has one, and DIRECTORY/NAME.expected.npy, its
logits; for a mixture of experts DIRECTORY/NAME.training.json, too: the loss with the auxiliary loss, and the norm of
each gradient.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    OPTConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
)
from transformers.models.mixtral import modeling_mixtral
from transformers.models.qwen2_moe import modeling_qwen2_moe

from tests.families.published import DYNAMIC, LINEAR, LLAMA3, YARN, YARN_WITH_ALL

SIZES = {
    "vocab_size": 400,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
DECODER = SIZES | {"intermediate_size": 112}
GROUPED = DECODER | {"num_key_value_heads": 2}
EXPERTS = {"num_local_experts": 4, "router_aux_loss_coef": 0.5}
SHARED = {
    "num_key_value_heads": 2,
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 80,
    "router_aux_loss_coef": 0.5,
}
CONFIGS = {
    "llama": LlamaConfig(**DECODER, num_key_value_heads=2, rope_theta=50000.0),
    "llama-tied": LlamaConfig(**DECODER, tie_word_embeddings=True),
    "llama3": LlamaConfig(**DECODER, num_key_value_heads=2, rope_theta=500000.0, rope_scaling=dict(LLAMA3)),
    "llama-linear": LlamaConfig(**DECODER, rope_scaling=dict(LINEAR)),
    "llama-rope_parameters": LlamaConfig(**DECODER, rope_theta=700.0),
    "qwen2": Qwen2Config(**DECODER, num_key_value_heads=2, rope_theta=1e6),
    "qwen2-tied": Qwen2Config(**DECODER, num_key_value_heads=2, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**DECODER, num_key_value_heads=2, head_dim=32, rope_theta=1e6),
    "qwen3-tied": Qwen3Config(**DECODER, num_key_value_heads=2, tie_word_embeddings=True),
    "bloom": BloomConfig(vocab_size=400, hidden_size=64, n_layer=2, n_head=4),
    "mistral": MistralConfig(**DECODER, num_key_value_heads=2, rope_theta=1e6, sliding_window=None),
    "mixtral": MixtralConfig(**DECODER, **EXPERTS, num_key_value_heads=2, rope_theta=1e6),
    "qwen2-moe": Qwen2MoeConfig(**DECODER, **SHARED),
    "qwen2-moe-normalized": Qwen2MoeConfig(**DECODER, **SHARED, norm_topk_prob=True),
    "opt": OPTConfig(**SIZES, word_embed_proj_dim=64, ffn_dim=128),
    "baichuan-7b": LlamaConfig(**DECODER, rms_norm_eps=1e-6),
    "llama-bin": LlamaConfig(**DECODER),
    "opt-bin": OPTConfig(**SIZES, word_embed_proj_dim=64, ffn_dim=128),
    "llama-dynamic": LlamaConfig(**DECODER | {"max_position_embeddings": 16}, rope_scaling=dict(DYNAMIC)),
    "qwen2-yarn": Qwen2Config(**GROUPED | {"max_position_embeddings": 131072}, rope_scaling=dict(YARN)),
    "qwen3-yarn": Qwen3Config(**GROUPED, head_dim=32, rope_scaling=dict(YARN_WITH_ALL)),
}


def main(directory: Path, ids: np.ndarray) -> None:
    for number, (name, config) in enumerate(CONFIGS.items()):
        torch.manual_seed(number)
        model = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():  # transformers draws vectors as ones and zeros
                parameter.add_(torch.randn_like(parameter) * (0.1 if parameter.ndim == 1 else 0.05))
            logits = model(torch.from_numpy(ids)).logits
        np.save(directory / f"{name}.expected.npy", logits.numpy())
        if hasattr(config, "router_aux_loss_coef"):
            (directory / f"{name}.training.json").write_text(json.dumps(_training(model, torch.from_numpy(ids))))
        target = directory / name
        model.save_pretrained(target, safe_serialization=not name.endswith("-bin"), max_shard_size="100KB")
        if name == "llama-rope_parameters":
            edit(target / "config.json", _as_transformers_5)
        if name == "baichuan-7b":
            _as_baichuan(target, model)
    tokenizer(directory / "llama3")


def _training(model, ids) -> dict:
    # On a CPU that of transformers 4.55's Qwen2-MoE fails for want of a device's number; Mixtral's is the same.
    modeling_qwen2_moe.load_balancing_loss_func = modeling_mixtral.load_balancing_loss_func
    outputs = model.train()(ids, labels=ids, output_router_logits=True)
    outputs.loss.backward()
    gradients = {name: float(parameter.grad.norm()) for name, parameter in model.named_parameters()}
    return {"loss": float(outputs.loss), "auxiliary": float(outputs.aux_loss), "gradients": gradients}


def edit(path: Path, change) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def _as_transformers_5(values: dict) -> None:
    values["rope_parameters"] = {"rope_type": "default", "rope_theta": values.pop("rope_theta")}
    values.pop("rope_scaling")


def _as_baichuan(target: Path, model) -> None:
    """Query, key and value in one matrix, as Baichuan's own files have them; one .bin file."""
    state = model.state_dict()
    for i in range(model.config.num_hidden_layers):
        attention = f"model.layers.{i}.self_attn"
        parts = [state.pop(f"{attention}.{name}_proj.weight") for name in "qkv"]
        state[f"{attention}.W_pack.weight"] = torch.cat(parts)
    for path in target.glob("*.safetensors*"):
        path.unlink()
    torch.save(state, target / "pytorch_model.bin")
    edit(target / "config.json", lambda values: values.update(model_type="baichuan"))


def tokenizer(target: Path) -> None:
    """A byte-level tokenizer with special tokens, and its ids of some texts."""
    from tests.weights.test_tokenizer import TEXTS, make_byte_level

    made = PreTrainedTokenizerFast(tokenizer_object=make_byte_level(), bos_token="<s>", eos_token="</s>")
    made.save_pretrained(target)
    (target.parent / "ids.json").write_text(json.dumps([made(text)["input_ids"] for text in TEXTS]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), np.load(sys.argv[2]))
