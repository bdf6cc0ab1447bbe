"""Adapters of every family, on tiny models: what they train, that they learn, that tensor parallel changes nothing."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from launch.families.arithmetic import lora_parameters, prefix_parameters
from launch.families.registry import FAMILIES
from tests.families.saved import saved_families
from tests.families.test_families import GRAD_NORM_TOLERANCE, LOSS_TOLERANCE, NAMES, groups, has, tiny_config

RANKS = "tests.families.adapter_ranks"
SIZES = {"lora": 8, "prefix": 32}


@groups
def test_lora_starts_at_the_model_and_trains_all_linear_layers_alone(ranks, group):
    [started] = ranks(1, f"{RANKS}:overfit_all", group, "lora", SIZES["lora"], 2)
    for name in group:
        found = started[name]
        assert found["losses"][0] == found["base_loss"], name
        assert found["trained"] == lora_parameters(tiny_config(name), FAMILIES[name].linear_layers, 8), name
        assert found["changed"] == [], name


@pytest.mark.parametrize(
    ("kind", "steps", "name"),
    [
        pytest.param(kind, steps, name, marks=pytest.mark.long if name == "llama" else pytest.mark.nightly)
        for kind, steps in (("lora", 30), ("prefix", 90))
        for name in NAMES
        if kind == "lora" or has(name, "prefix")
    ],
)
def test_an_adapter_halves_the_loss_on_fixed_samples(ranks, kind, steps, name):
    [found] = ranks(1, f"{RANKS}:overfit_all", [name], kind, SIZES[kind], steps, time_limit=500)
    assert found[name]["losses"][-1] < found[name]["losses"][0] / 2
    if kind == "prefix":
        assert found[name]["trained"] == prefix_parameters(tiny_config(name), SIZES[kind])
        assert found[name]["changed"] == []


@groups
@pytest.mark.parametrize("kind", [*SIZES, pytest.param("dora", marks=pytest.mark.long)])
def test_two_processes_load_it_give_the_numbers_of_one_and_save_the_same(ranks, tmp_path, group, kind):
    """Fused weights are divided in several places, and what is added to them too."""
    names = [name for name in group if has(name, "tensor_parallel") and (kind != "prefix" or has(name, "prefix"))]
    arguments = (f"{RANKS}:numbers_all", names, kind, SIZES.get(kind, 8), saved_families(ranks))
    [single], two = (ranks(n, *arguments, n, str(tmp_path)) for n in (1, 2))
    for found in two:
        for name, expected in single.items():
            assert found[name]["loss"] == pytest.approx(expected["loss"], abs=LOSS_TOLERANCE), name
            assert found[name]["grad_norm"] == pytest.approx(expected["grad_norm"], rel=GRAD_NORM_TOLERANCE), name
    for name in names:
        files = [f"{tmp_path}/{name}-{kind}-of-{n}/peft_model-00001-of-00001.safetensors" for n in (1, 2)]
        one, other = map(load_file, files)
        assert one.keys() == other.keys(), name
        assert [key for key in one if not np.array_equal(one[key], other[key])] == [], name
