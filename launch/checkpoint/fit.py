"""Do the tensors of a file fit a model? The faults of all of them at once, as lines for the user. No Paddle."""

from dataclasses import dataclass, field

from launch.checkpoint.weight_files import listed

# Tables that older versions saved with the weights; each model computes its own.
COMPUTED = (
    "rotary_emb.inv_freq",
    "rotary_embeddings.inv_freq",
    "rotary_pos_emb.inv_freq",
    "rotary_emb.cos_cached",
    "rotary_emb.sin_cached",
)


@dataclass
class Misfits:
    """Names of tensors that the model wants and the files lack, that the files have and the model does not want, and
    lines about those of another shape or dtype."""

    missing: set[str] = field(default_factory=set)
    extra: set[str] = field(default_factory=set)
    different: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.different)

    def __str__(self) -> str:
        kinds = (("missing", self.missing), ("not in the model", self.extra), ("different", self.different))
        return "; ".join(f"{kind}: {listed(sorted(found))}" for kind, found in kinds if found)


def is_computed(name: str) -> bool:
    return name.endswith(COMPUTED)


def difference(name: str, found: str, expected: str) -> str:
    return f"{name} (found {found}, expected {expected})"
