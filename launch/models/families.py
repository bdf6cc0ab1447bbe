"""The table of model families: one row per family, as data. Classes are named, not imported."""

from dataclasses import dataclass

from launch.errors import UserError


@dataclass(frozen=True)
class Family:
    """One model family of paddlenlp.

    model_type: the value of `model_type` in config.json. The classes are names in `paddlenlp.transformers`.
    rehearsal_config: the tiny configuration that stands in for every model of the family on a CPU.
    """

    model_type: str
    config_class: str
    model_class: str
    pipeline_class: str
    rehearsal_config: str


FAMILIES = {
    family.model_type: family
    for family in [
        Family("llama", "LlamaConfig", "LlamaForCausalLM", "LlamaForCausalLMPipe", "llama-rehearsal"),
    ]
}


def family_of(model_type: str) -> Family:
    """The family of a config.json's `model_type`. Raises UserError for a family that is not in the table."""
    if model_type not in FAMILIES:
        raise UserError(
            f"model_type: found {model_type!r}, allowed: {', '.join(sorted(FAMILIES))}. "
            "Add a row to launch/models/families.py for another family."
        )
    return FAMILIES[model_type]
