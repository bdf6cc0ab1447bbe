"""What Paddle chooses on pretended cards, for test_choices.py."""

from launch.families.registry import family_of
from launch.switches.kernel_checks import Heads, attention_errors, flash_attention_of, shapes
from tests.devices.pretended_card import pretended_card

HEADS = 2  # no kernel depends on their number; of one alone, mixed-up heads would not show


def kernels(cases: list) -> list:
    """[kernels taken, largest error] for [model type, capability, dtype, head size, masks, tokens of a prefix] each.

    The attentions are those of the start-up check, in the numbers of float32: with several heads on the first card of
    those that differ in their capability alone.
    """
    firsts = {(model_type, *rest): capability for model_type, capability, *rest in reversed(cases)}
    return [
        _kernels(HEADS if firsts[(model_type, *rest)] == capability else 1, model_type, capability, *rest)
        for model_type, capability, *rest in cases
    ]


def _kernels(heads: int, model_type: str, capability: list, dtype: str, size: int, masks: bool, prefix: int) -> list:
    attend = flash_attention_of(family_of(model_type))
    with pretended_card(tuple(capability), dtype) as taken:
        found = [
            error
            for shape in shapes(masks, prefix)
            for error in attention_errors(attend, Heads(heads, heads, size), "float32", shape).values()
        ]
    return [sorted(set(taken)), max(found)]
