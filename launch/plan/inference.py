"""The memory of a card on which a model answers, by arithmetic alone: no Paddle, no weights.

    plan = plan_answers(config, "float16", base=None, cards=2, batch=1, prompt=1024, answer=128)
    plan.total_bytes, plan.fits(card_of_memory(24))

A model on several cards is sharded by tensor parallelism, as launch/commands/predict.py does it.
"""

from dataclasses import dataclass

from launch.config.layout import Layout
from launch.families.parameters import INNER, attention_heads, head_size, key_value_heads, layers, stated
from launch.families.registry import family_of_config
from launch.plan.hardware import GIB, Card
from launch.plan.job import FLOAT32, ITEM, Job
from launch.plan.memory_model import outside_allocator, workspace
from launch.plan.shards import local_tensors
from launch.tape.quantized import HEAD_WEIGHT, PART, Format

WIDE = 8  # tensors as wide as the hidden size that a layer has at once, and 3 as wide as its MLP


@dataclass(frozen=True)
class AnswerPlan:
    """Bytes of each part on each card."""

    what: str
    parts: dict[str, int]

    @property
    def total_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(self.parts.values())

    def fits(self, card: Card) -> bool:
        """Return whether the model fits a card."""
        return self.total_bytes <= card.memory_bytes

    def lines(self, card: Card) -> list[str]:
        """Return the plan as lines."""
        verdict = "fits" if self.fits(card) else "DOES NOT FIT"
        return [
            self.what,
            *(f"{part:<17}{size / GIB:9.2f}" for part, size in self.parts.items()),
            f"{'together':<17}{self.total_bytes / GIB:9.2f} GiB a card",
            f"{verdict}: {card.name} has {card.memory_bytes / GIB:.1f} GiB; uncalibrated (docs/plan.md)",
        ]


def plan_answers(
    config: dict, dtype: str, base: Format | None, cards: int, batch: int, prompt: int, answer: int
) -> AnswerPlan:
    """Return the plan of a model that answers.

    Args:
        dtype: Of weights and activations.
        base: The format of quantized weights.
        cards: That share the model.
        batch: Questions at once, equally long.
        prompt: Tokens, at most.
        answer: Tokens, at most.
        config: Of the model.
    """
    layout = Layout(1, 1, cards, 1, "")
    job = Job(config, layout, batch, 1, prompt, compute=dtype, base=base)
    item, hidden = ITEM[dtype], config["hidden_size"]
    of_token = 2 * layers(config) * key_value_heads(config) * head_size(config) // cards  # elements on a card
    widest = max(
        min(tensor.size, PART) if tensor.base and tensor.name == HEAD_WEIGHT else tensor.size
        for tensor in local_tensors(job)
        if tensor.base or not base
    )
    parts = {
        "weights": sum(tensor.nbytes for tensor in local_tensors(job)),
        "keys and values": of_token * batch * (prompt + answer) * item,
        "logits": batch * prompt * config["vocab_size"] * (item + ITEM[FLOAT32]),
        "a layer": batch * prompt * item * (WIDE * hidden + 3 * (stated(config, INNER) or 4 * hidden) // cards),
        "scores": 2 * batch * attention_heads(config) // cards * prompt**2 * ITEM[FLOAT32],
        "dequantized": base.scratch(widest, item) if base else 0,
        "allocator slack": workspace(job),
        **outside_allocator(job),
    }
    title, kept = family_of_config(config).title, f"{base.algo} base" if base else dtype
    what = f"{title}, {kept}, on {cards} card{'s' if cards > 1 else ''}; {batch} x ({prompt} + {answer}) tokens"
    return AnswerPlan(what, {part: size for part, size in parts.items() if size})
