"""Tables, losses and answers of models whose positions are scaled, for test_scaled_positions_ignored.py."""

import paddle
import paddlenlp.transformers as transformers

from launch.families.named_configs import load_config
from launch.families.parameters import head_size
from launch.families.registry import FAMILIES
from launch.generation.generate import Decoding, generate
from launch.models.scaled_rotary import ScaledRotaryEmbedding
from launch.upstream import correct
from tests.families.family_ranks import build, start_fleet, tiny
from tests.generation.generate_ranks import NEVER, NEW_TOKENS, prompts
from tests.training.packing_ranks import packed


def tables(name: str, scaling: dict, length: int, corrected: bool = True) -> dict:
    """Cosines and sines of a model's first layer; whether both layers share them, and rows that are kept."""
    family = FAMILIES[name]
    if corrected:
        correct(family.corrections)
        correct(family.corrections)
    values = load_config(family.rehearsal_config) | {"num_hidden_layers": 2, "max_position_embeddings": 64}
    config = getattr(transformers, family.config_class)(**values, rope_scaling=scaling)
    model = getattr(transformers, family.model_class)._from_config(config, dtype="float32")
    first, second = (layer.self_attn.rotary_emb for layer in model.base_model.layers)
    found = _tables(first, length)
    _tables(second, length)
    if not corrected:
        return {"tables": found, "size": head_size(values), "theta": config.rope_theta}
    shared = first.tables is second.tables
    model.to(dtype="bfloat16")
    return {
        "tables": found,
        "after a cast": _tables(first, length),
        "size": head_size(values),
        "theta": config.rope_theta,
        "shared": shared,
        "rows": first.tables.rows,
        "buffers": [key for key in model.state_dict() if "rotary" in key],
    }


def tables_of_lengths(scaling: dict, lengths: list[int]) -> list:
    layer = ScaledRotaryEmbedding(16, 10000.0, scaling, 16)
    return [(length, _tables(layer, length)) for length in lengths]


def _tables(layer, length: int) -> list:
    both = layer(paddle.zeros([1, length, 2, 4]), seq_len=length)
    return [table[0, :, 0].tolist() for table in both]


def share_prefixes(scalings: list[dict]) -> list[bool]:
    """Whether an evaluation puts questions of such LLaMAs into one row."""
    from launch.evaluation.likelihood import shares_prefixes

    return [shares_prefixes(FAMILIES["llama"], tiny("llama", rope_scaling=one).to_dict()) for one in scalings]


def packed_with(name: str, scaling: dict) -> dict:
    return packed(name, rope_scaling=scaling)


def answers(name: str, scaling: dict) -> tuple[list, list]:
    """Greedy answers to prompts in one batch, and what forward passes without a cache make most likely in their
    places."""
    start_fleet()
    model = build(name, tiny(name, rope_scaling=scaling))
    model.eval()
    found = generate(model, FAMILIES[name], prompts(name), Decoding(NEW_TOKENS), NEVER)
    likely = []
    for prompt, answer in zip(prompts(name), found, strict=True):
        with paddle.no_grad():
            outputs = model(input_ids=paddle.to_tensor([prompt + answer]))
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        likely.append(logits[0, len(prompt) - 1 : -1].argmax(axis=-1).tolist())
    return found, likely
