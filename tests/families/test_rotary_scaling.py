"""Scaled positions: what a config.json says, and the numbers that follow."""

import json

import pytest

from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.models.rotary_scaling import attention_factor, inverse_frequencies, scaling_of, with_scaling
from tests.families.published import DYNAMIC, LINEAR, LLAMA3, YARN, YARN_WITH_ALL
from tests.families.reference import scaled
from tests.store import ROOT

ORIGINAL = "original_max_position_embeddings"
CASES = {  # (size of a head, rope_theta, length of the sequence, max_position_embeddings, block)
    "linear": (128, 10000.0, 100, 4096, LINEAR),
    "dynamic, short": (128, 10000.0, 4096, 4096, DYNAMIC),
    "dynamic, long": (128, 10000.0, 9000, 4096, DYNAMIC),
    "llama3": (128, 500000.0, 100, 131072, LLAMA3 | {ORIGINAL: 8192}),
    "yarn": (128, 1e6, 100, 32768, YARN),
    "yarn, small heads": (64, 10000.0, 100, 32768, YARN),
    "yarn, all keys": (64, 10000.0, 100, 8192, YARN_WITH_ALL | {ORIGINAL: 2048}),
    "yarn, its factor": (64, 10000.0, 100, 131072, YARN | {"attention_factor": 0.9}),
}

STORED = {  # pair: radians a position of Qwen2.5-7B with the block of its page, by transformers 4.55.4 in float32
    0: 1.0,
    1: 0.8058422207832336,
    24: 0.005375321488827467,
    32: 0.0006029411451891065,
    40: 4.4456985051510856e-05,
    63: 3.102344408034696e-07,
}


def ours(size: int, theta: float, length: int, positions: int, block: dict) -> tuple[list[float], float]:
    scaling = scaling_of({"max_position_embeddings": positions, "rope_scaling": block}, "config.json")
    assert scaling
    return inverse_frequencies(size, theta, scaling, length), attention_factor(scaling)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_are_those_of_the_papers(case):
    size, theta, length, positions, block = case
    frequencies, factor = scaled({"max_position_embeddings": positions, "rope_scaling": block}, size, theta, length)
    found, its_factor = ours(*case)
    assert found == pytest.approx(frequencies.tolist(), rel=1e-9)
    assert its_factor == pytest.approx(factor, rel=1e-9)


def test_are_the_stored_numbers_of_transformers():
    found, factor = ours(*CASES["yarn"])
    assert {pair: found[pair] for pair in STORED} == pytest.approx(STORED, rel=1e-6)
    assert factor == pytest.approx(1.1386294361, rel=1e-9)


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        ({"rope_scaling": YARN}, 131072),
        ({"rope_scaling": YARN | {"rope_type": "yarn"}, "max_position_embeddings": 40960}, 131072),
        ({"rope_parameters": {**YARN, "rope_theta": 1e6}}, 131072),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, 131072),
        ({"rope_scaling": YARN, "max_position_embeddings": 200000}, 200000),
    ],
)
def test_every_form_of_the_block_means_the_same(config, positions):
    config = {"max_position_embeddings": 32768} | config
    found = with_scaling(config, "config.json")
    assert found["rope_scaling"] == {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 32768}
    assert found["max_position_embeddings"] == positions
    assert with_scaling(found, "config.json") == found


@pytest.mark.parametrize(("old", "kind"), [("linear", "linear"), ("dynamic_ntk", "dynamic")])
def test_keys_of_paddlenlps_llama_are_read(old, kind):
    config = {"max_position_embeddings": 64, "rope_scaling_type": old, "rope_scaling_factor": 4.0}
    found = with_scaling(config, "config.json")
    assert found["rope_scaling"] == {"rope_type": kind, "factor": 4.0, ORIGINAL: 64}
    assert (found["max_position_embeddings"], "rope_scaling_type" in found) == (256, False)


@pytest.mark.parametrize("block", [None, {}, {"rope_type": "default"}, {"rope_theta": 1e6}])
def test_without_a_type_nothing_is_scaled(block):
    assert with_scaling({"max_position_embeddings": 64, "rope_scaling": block}, "") == {"max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            {"rope_type": "longrope", "factor": 2.0},
            "rope_type: found 'longrope', allowed: dynamic, linear, llama3, yarn",
        ),
        ({"factor": 2.0}, "rope_type: found None, allowed: dynamic, linear, llama3, yarn"),
        ({"type": ["yarn"]}, "rope_type: found ['yarn'], allowed: dynamic"),
        ({"type": "llama3", "factor": 2.0}, "low_freq_factor, high_freq_factor missing, which 'llama3' needs"),
        (YARN | {"factor": 0.5}, "factor: found 0.5, allowed: 1 to 10000"),
        (YARN | {"factor": 1e308}, "factor: found 1e+308, allowed: 1 to 10000"),
        (YARN | {"beta_fast": 1, "beta_slow": 2}, "beta_fast: found 1.0, allowed: more than beta_slow, which is 2.0"),
        (LLAMA3 | {"low_freq_factor": 4.0}, "high_freq_factor: found 4.0, allowed: more than low_freq_factor"),
        (YARN | {"beta_fast": "32"}, "beta_fast: found '32', allowed: a number above 0"),
    ],
)
def test_what_cannot_be_right_is_refused(tmp_path, block, message):
    config = json.loads((ROOT / "launch/families/configs/qwen2-rehearsal.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": block}))
    with pytest.raises(UserError) as refused:
        load_config(str(tmp_path))
    assert f"config.json: rope_scaling: {message}" in str(refused.value)


def test_yarn_needs_a_base_above_1():
    with pytest.raises(UserError, match="c.json: rope_theta: found 1.0, allowed with rope_type 'yarn': more than 1"):
        with_scaling({"max_position_embeddings": 64, "rope_theta": 1.0, "rope_scaling": YARN}, "c.json")


@pytest.mark.parametrize("name", ["mistral", "mixtral", "qwen2-moe", "chatglm2"])
def test_a_family_whose_code_scales_none_is_refused(tmp_path, name):
    config = load_config(f"{name}-rehearsal")
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": LINEAR, "max_position_embeddings": 64}))
    with pytest.raises(UserError, match="rope_scaling: found 'linear', and PaddleNLP's model of this family scales no"):
        load_config(str(tmp_path))
