"""Where each of our parameters comes from in a Hugging Face file: its name there, and what part of the tensor.

Linear layers and heads are stored transposed there, [outputs, inputs]; everything else has the same shape.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from launch.families.parameters import HEAD, LINEAR, Parameter
from launch.families.registry import family_of

TIED_HEAD = "lm_head.weight"
FUSED = ("q_proj", "k_proj", "v_proj")  # in this order in Baichuan's W_pack


@dataclass(frozen=True)
class Origin:
    """A tensor of the file, or one of `parts` equal slices of its rows. shape: what the whole tensor must have."""

    name: str
    shape: tuple[int, ...]
    transposed: bool
    part: int = 0
    parts: int = 1


def their_name(name: str, model_type: str) -> str:
    """What a parameter of ours is called in a Hugging Face file; `name` may be that of its layer."""
    for pattern, replacement in family_of(model_type).published.renamed:
        name = re.sub(pattern, replacement, name)
    return name


def origin(parameter: Parameter, model_type: str, names: Collection[str]) -> Origin:
    """Where a parameter of ours comes from. names: all that are in the files."""
    name = their_name(parameter.name, model_type)
    prefix = family_of(model_type).published.optional_prefix
    if prefix and not any(one.startswith(prefix) for one in names):
        name = name.removeprefix(prefix)
    transposed = parameter.kind in (LINEAR, HEAD)
    shape = parameter.shape[::-1] if transposed else parameter.shape
    fused, part = fused_name(name)
    if fused and fused in names:
        rows, columns = shape
        return Origin(fused, (3 * rows, columns), transposed, part, 3)
    return Origin(name, shape, transposed)


def fused_name(name: str) -> tuple[str | None, int]:
    """(W_pack's name, which third of its rows) of a query, key or value matrix in Baichuan's files; None for others."""
    layer, _, projection = name.removesuffix(".weight").rpartition(".")
    return (f"{layer}.W_pack.weight", FUSED.index(projection)) if projection in FUSED else (None, 0)
