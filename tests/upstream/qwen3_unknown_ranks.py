"""A tiny Qwen3 through paddlenlp's Auto classes, for test_qwen3_unknown.py."""

from paddlenlp.transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from launch.models.qwen3_model import Qwen3ForCausalLM
from launch.training.model import family_config, save_random_model
from launch.upstream import correct


def save(directory: str) -> None:
    save_random_model("qwen3-rehearsal", directory)


def loaded(directory: str, corrected: bool) -> list[str]:
    """The classes that the Auto classes find by the directory's config.json."""
    if corrected:
        correct(["qwen3_unknown"])
        correct(["qwen3_unknown"])  # as each model of a process does
    models = [kind.from_pretrained(directory) for kind in (AutoModel, AutoModelForCausalLM)]
    return [type(one).__name__ for one in (AutoConfig.from_pretrained(directory), *models)]


def shapes_without_head_dim() -> dict[str, list[int]]:
    sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1}
    config = family_config({"model_type": "qwen3", "num_attention_heads": 4, "num_key_value_heads": 2} | sizes)
    attention = Qwen3ForCausalLM(config).qwen2.layers[0].self_attn
    return {name: getattr(attention, name).weight.shape for name in ("q_proj", "k_proj", "o_proj", "q_norm")}
