"""Adapters of every family, on tiny models: what they train, that they learn, that tensor parallel changes nothing."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from launch.families.arithmetic import lora_parameters, prefix_parameters
from launch.families.registry import FAMILIES
from tests.families.test_families import GRAD_NORM_TOLERANCE, LOSS_TOLERANCE, NAMES, having, tiny_config

RANKS = "tests.families.adapter_ranks"
RANK, TOKENS = 8, 32
WITH_PREFIX = having("prefix")

every_family = pytest.mark.parametrize("name", NAMES)
with_prefix = pytest.mark.parametrize("name", WITH_PREFIX)


@pytest.fixture(scope="module")
def started(ranks) -> dict:
    """Two steps of LoRA."""
    return ranks(1, f"{RANKS}:overfit_all", NAMES, "lora", RANK, 2)[0]


@every_family
def test_lora_starts_with_the_models_loss_to_the_last_bit(started, name):
    assert started[name]["losses"][0] == started[name]["base_loss"]


@every_family
def test_lora_trains_all_linear_layers_and_nothing_else(started, name):
    layers = FAMILIES[name].linear_layers
    assert started[name]["trained"] == lora_parameters(tiny_config(name), layers, RANK)
    assert started[name]["changed"] == []


@pytest.fixture(scope="module")
def prefix(ranks) -> dict:
    return ranks(1, f"{RANKS}:overfit_all", WITH_PREFIX, "prefix", TOKENS, 90, time_limit=500)[0]


@pytest.mark.long
@with_prefix
def test_prefix_trains_keys_and_values_and_nothing_else(prefix, name):
    assert prefix[name]["trained"] == prefix_parameters(tiny_config(name), TOKENS)
    assert prefix[name]["changed"] == []


@pytest.mark.long
@with_prefix
def test_prefix_halves_the_loss_on_fixed_samples(prefix, name):
    losses = prefix[name]["losses"]
    assert losses[-1] < losses[0] / 2


@pytest.mark.long
def test_lora_halves_the_loss_on_fixed_samples(ranks):
    [found] = ranks(1, f"{RANKS}:overfit_all", NAMES, "lora", RANK, 30, time_limit=500)
    for name in NAMES:
        assert found[name]["losses"][-1] < found[name]["losses"][0] / 2, name


@pytest.fixture(scope="module")
def models(ranks, tmp_path_factory) -> str:
    directory = str(tmp_path_factory.mktemp("families"))
    ranks(1, "tests.families.family_ranks:save_all", NAMES, directory)
    return directory


@pytest.fixture(scope="module", params=["lora", "prefix"])
def both(ranks, models, request) -> tuple[str, dict, list[dict]]:
    """The kind of adapter; the numbers of one process, and of each of two ranks that have loaded its adapter."""
    names, size = (NAMES, RANK) if request.param == "lora" else (WITH_PREFIX, TOKENS)
    names = [name for name in names if name in having("tensor_parallel")]
    [single], two = [ranks(n, f"{RANKS}:numbers_all", names, request.param, size, models, n) for n in (1, 2)]
    return request.param, single, two


def test_tensor_parallel_gives_the_numbers_of_one_process(both):
    _, single, two = both
    for found in two:
        for name, expected in single.items():
            assert found[name]["loss"] == pytest.approx(expected["loss"], abs=LOSS_TOLERANCE), name
            assert found[name]["grad_norm"] == pytest.approx(expected["grad_norm"], rel=GRAD_NORM_TOLERANCE), name


def test_an_adapter_loaded_and_saved_under_tensor_parallel_is_the_same(both, models):
    """Fused weights are divided in several places, and what is added to them too."""
    kind, single, _ = both
    for name in single:
        one, two = (load_file(f"{models}/{name}-{kind}-of-{n}/peft_model-00001-of-00001.safetensors") for n in (1, 2))
        assert one.keys() == two.keys(), name
        assert [key for key in one if not np.array_equal(one[key], two[key])] == [], name
