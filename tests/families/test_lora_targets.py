"""Names of LoRA's layers as users of PEFT, ms-swift, LLaMA-Factory and PaddleNLP write them."""

import pytest

from launch.errors import UserError
from launch.families.lora_targets import lora_targets
from launch.families.named_configs import load_config

LLAMA = load_config("llama-rehearsal")
EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", EVERY),
        ("all", EVERY),
        ("q_proj all-linear", EVERY),
        ("v_proj q_proj", ("q_proj", "v_proj")),
        ("q_proj,v_proj", ("q_proj", "v_proj")),
        ("self_attn.q_proj", ("q_proj",)),
        (r".*q_proj.*", ("q_proj",)),
        (r"model\.layers\.\d+\.mlp\.(up|down)_proj", ("up_proj", "down_proj")),
        (r".*\.[01]\..*k_proj .*\.[23]\..*k_proj", ("k_proj",)),
    ],
)
def test_names_and_expressions(words, expected):
    assert lora_targets(LLAMA, words.split()) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("q_proj q_porj", "found q_porj, allowed: q_proj, k_proj, v_proj, .*; all-linear; .* Is q_proj meant"),
        ("q_proj,qkv", "found qkv, allowed: q_proj"),
        (
            r".*layers\.0\..*",
            "found .* which name 1 of [24] layers called down_proj. All of them get adapters, or none",
        ),
        ("(q_proj", "found .q_proj, which is no regular expression: missing"),
        ("lm_head", "found lm_head, allowed"),
    ],
)
def test_names_that_no_layer_has(words, message):
    with pytest.raises(UserError, match=f"--lora_target_modules: {message}"):
        lora_targets(LLAMA, words.split())
