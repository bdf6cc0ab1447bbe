"""A recipe as someone may change it, and what the preflight must say to that."""

import json
from dataclasses import dataclass, field

from launch.families.named_configs import load_config
from tests.devices.fake_nvml import card

PRETRAIN, FOUR_D, TINY = "llama-7b/pretrain", "llama-7b/pretrain-4d", "tiny/pretrain"
A100S = [card("A100", index) for index in range(16)]


@dataclass(frozen=True)
class Variant:
    """recipe, argv, wishes: what is changed. faults, told: (subject, a part of the text) of each. here: the machine's
    cards. files: path -> text of what lies in the folder it is started from."""

    recipe: str
    argv: str = ""
    wishes: dict = field(default_factory=dict)
    faults: tuple = ()
    told: tuple = ()
    here: list = field(default_factory=lambda: A100S[:8])
    files: dict = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.recipe} {self.argv} {self.wishes or ''}".strip()


def wrong(recipe: str, argv: str, *faults, told=(), **more) -> Variant:
    return Variant(recipe, argv, faults=faults, told=told, **more)


def odd(**sizes) -> dict:
    """A model directory with a small LLaMA's configuration."""
    config = load_config("llama-rehearsal") | {"max_position_embeddings": 2048} | sizes
    return {"odd/config.json": json.dumps(config)}
