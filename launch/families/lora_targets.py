"""Which linear layers --lora_target_modules names: by PEFT's words and rules, for names of either format."""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from launch.errors import UserError
from launch.families.parameters import LINEAR
from launch.families.registry import family_of_config, parameters, their_name

FLAG = "--lora_target_modules"
ALL = ("all-linear", "all")  # of PEFT and ms-swift; of LLaMA-Factory


def named_by(targets: Sequence[str] | str, layer: str) -> bool:
    """Return whether PEFT's target_modules name a layer.

    Args:
        targets: A regular expression of the whole name, or names, of which the layer's is one or ends with one.
        layer: The whole name, such as model.layers.0.self_attn.q_proj.
    """
    if isinstance(targets, str):
        return targets in ALL or bool(re.fullmatch(targets, layer))
    return any(layer == name or layer.endswith(f".{name}") for name in targets)


def lora_targets(config: dict, requested: Sequence[str]) -> tuple[str, ...]:
    """Return the last parts of the names of the layers that get adapters; all linear ones where none is requested.

    Args:
        config: Of the model.
        requested: Words of --lora_target_modules: names, also joined by commas, or regular expressions.

    Raises:
        UserError: If a word names no layer, or some of those with one last part.
    """
    layers = family_of_config(config).linear_layers
    parts = [re.split(",", word) if re.fullmatch(r"[\w.,-]+", word) else [word] for word in requested]
    words = [name for names in parts for name in names if name]
    if not words or set(words) & set(ALL):
        return layers
    if set(words) <= set(layers):
        return tuple(layer for layer in layers if layer in words)
    model_type = config["model_type"]
    matrices = [item.name.removesuffix(".weight") for item in parameters(config) if item.kind == LINEAR]
    names = {layer: (layer, their_name(layer, model_type)) for layer in matrices}
    chosen = {word: {layer for layer, pair in names.items() if _names(word, pair)} for word in words}
    for word in words:
        if not chosen[word]:
            near = get_close_matches(word, layers, 1)
            meant = f" Is {near[0]} meant?" if near else ""
            raise UserError(
                f"{FLAG}: found {word}, allowed: {', '.join(layers)}; all-linear; or an expression for names such as "
                f"{matrices[0]}.{meant}"
            )
    every = set().union(*chosen.values())
    found = {layer.rpartition(".")[2] for layer in every}
    for part in sorted(found):
        same = {layer for layer in matrices if layer.endswith(f".{part}")}
        if not same <= every:
            raise UserError(
                f"{FLAG}: found {' '.join(words)}, which name {len(same & every)} of {len(same)} layers called {part}. "
                f"All of them get adapters, or none: {FLAG} {part}."
            )
    return tuple(layer for layer in layers if layer in found)


def _names(word: str, names: tuple[str, str]) -> bool:
    """Return whether a word names a layer, as a list of PEFT's or as its expression does."""
    try:
        return any(named_by([word], name) or named_by(word, name) for name in names)
    except re.error as error:
        raise UserError(f"{FLAG}: found {word}, which is no regular expression: {error}.") from None
