"""What every recipe computes with on which card: its own decisions, and Paddle's under a pretended card.

Paddle's selector of attention kernels is Python; it runs here with the place, the capability and the dtypes of a card
(pretended_card.py). Kernels do not: what they compute is stood in for.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from launch.config.flag_values import FlagValues
from launch.devices import fused_ln
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.parameters import head_size
from launch.preflight.requested import DEMO_FOLDERS
from launch.switches import FLASH_ATTENTION, FUSED_RMS_NORM, precision
from launch.switches.switch import case_of
from tests.devices.fake_nvml import KINDS
from tests.recipes.test_rendered import RECIPES, script, stated_flags

CARDS = ("A100", "4090", "V100", "T4")
BUILD = fused_ln.Build(Path(), fused_ln.paddle_version(), "12.6", ((7, 0), (7, 5), (8, 0), (8, 6), (8, 9)))
HALF, OLD_HALF = "bfloat16 O2", "float16 O2"
FLASH, EFFICIENT, EXACT = "flash", "memory efficient", "exact"
FUSED, OWN = "fused_ln", "the model's own"
# Recipes whose attention needs no mask. On cards before A100 the others' is exact: the memory efficient kernel would
# need a copy of the mask for each head.
UNMASKED = {
    "baichuan-13b/lora-2gpu",
    "ernie4.5-0.3b/pretrain",
    "llama-7b/pipeline",
    "llama-7b/prefix",
    "llama-7b/pretrain",
    "llama-7b/pretrain-4d",
    "llama3-8b/pretrain",
    "qwen2.5-0.5b/grpo",
    "qwen3-0.6b/grpo-lora",
    "qwen3-4b/grpo-qlora",
    "qwen3-8b/kto-lora",
    "qwen3-8b/prefix",
    "qwen3-8b/pretrain",
}
# Recipes whose optimizer keeps bfloat16 weights alone: older cards are refused.
BFLOAT16_ALONE = {"llama3-8b/finetune-1gpu", "qwen3-8b/finetune-1gpu"}


def expected(name: str, card: str) -> tuple[str, str, str]:
    """(amp, attention, norm)"""
    if name.startswith("tiny/"):
        return "float32", EXACT, FUSED
    norm = OWN if name.startswith("chatglm") else FUSED
    if KINDS[card][2] >= (8, 0):
        return HALF, FLASH, norm
    return OLD_HALF, EFFICIENT if name in UNMASKED else EXACT, norm


def recipe_name(recipe: Path) -> str:
    return f"{recipe.parent.name}/{recipe.stem}"


@pytest.fixture(scope="module")
def decided() -> dict[str, list]:
    return {recipe_name(recipe): [_decided(recipe, card) for card in CARDS] for recipe in RECIPES}


def asked(decided: dict[str, list]) -> list[tuple]:
    """The arguments of choice_ranks.kernels."""
    return sorted(
        {kernel for of_cards in decided.values() for _, kernel, _ in filter(None, of_cards) if kernel != EXACT}
    )


def _config(recipe: Path) -> dict:
    """Of the recipe's model; the demo's, which is there after the demo alone, has the configuration of its recipe."""
    name = FlagValues(script(recipe), stated_flags(recipe)).model_name_or_path
    return load_config(DEMO_FOLDERS[name].config if name in DEMO_FOLDERS else name)


def _decided(recipe: Path, card: str) -> tuple | None:
    """(amp, EXACT or the arguments of choice_ranks.kernels, norm)"""
    flags, capability = FlagValues(script(recipe), stated_flags(recipe)), KINDS[card][2]
    config = _config(recipe)
    try:
        bf16, fp16 = precision.expected(flags, capability)
    except UserError:
        return None
    dtype = precision.attention_dtype(bf16, fp16, flags.fp16_opt_level)
    case = replace(case_of(flags, config, capability, dtype, "12.6"), fused_ln=BUILD)
    attention = EXACT
    if flags.use_flash_attention and not FLASH_ATTENTION.obstacle(case):
        attention = (config["model_type"], capability, dtype, head_size(config), case.masked, case.prefix)
    fused = flags.use_fused_rms_norm and not FUSED_RMS_NORM.obstacle(case)
    return (f"{dtype} {flags.fp16_opt_level}" if bf16 or fp16 else dtype, attention, FUSED if fused else OWN)


def test_what_every_recipe_computes_with(ranks, decided):
    [taken] = ranks(1, "tests.devices.choice_ranks:kernels", asked(decided))
    answers = dict(zip(asked(decided), taken, strict=True))
    for taken, error in answers.values():
        assert error < 1e-4 and len(taken) == 1
    assert set(decided) > UNMASKED and len(decided) == len(RECIPES)
    for name, choices in decided.items():
        for card, choice in zip(CARDS, choices, strict=True):
            if KINDS[card][2] < (8, 0) and name in BFLOAT16_ALONE:
                assert choice is None
                continue
            amp, kernel, norm = choice
            attention = EXACT if kernel == EXACT else answers[kernel][0][0]
            assert (amp, attention, norm) == expected(name, card), (name, card)


def test_where_fused_ln_is_not_built_paddles_own_norm_takes_its_place():
    for recipe in RECIPES:
        flags, config = FlagValues(script(recipe), stated_flags(recipe)), _config(recipe)
        for card in CARDS:
            fused = expected(recipe_name(recipe), card)[2] == FUSED
            case = replace(case_of(flags, config, KINDS[card][2], "float16"), fused_ln=None)
            assert FUSED_RMS_NORM.obstacle(case)
            assert FUSED_RMS_NORM.substituted(case) == fused, (recipe, card)
