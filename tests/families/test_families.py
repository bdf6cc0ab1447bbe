"""What the table of families says, against the models themselves: tiny ones on random weights."""

import pytest

from launch.families.arithmetic import ModelShape
from launch.families.family import FEATURES
from launch.families.named_configs import load_config
from launch.families.parameters import LINEAR
from launch.families.registry import FAMILIES, family_of_config, parameters
from launch.weights.conversion import our_config
from tests.families.cells import CELLS
from tests.families.published import ALL
from tests.families.saved import saved_families

RANKS = "tests.families.family_ranks"
NAMES = list(FAMILIES)
SOME = ["llama", "chatglm_v2", "glm"]
OTHERS = [name for name in NAMES if name not in SOME]
LOSS_TOLERANCE = 2e-6
GRAD_NORM_TOLERANCE = 1e-5
DIVIDED = ("tensor_parallel", "sequence_parallel", "flash_attention")

groups = pytest.mark.parametrize(
    "group", [pytest.param(SOME, id="some"), pytest.param(OTHERS, id="others", marks=pytest.mark.long)], scope="module"
)
every_family = pytest.mark.parametrize("name", NAMES)


def has(name: str, feature: str) -> bool:
    return feature not in FAMILIES[name].lacking


def tiny_config(name: str) -> dict:
    """As tests/families/family_ranks.py builds it."""
    layers = {"n_layer": 2, "num_layers": 2, "num_hidden_layers": 2}
    config = load_config(FAMILIES[name].rehearsal_config)
    return config | {key: value for key, value in layers.items() if key in config} | {"vocab_size": 256}


@pytest.fixture(scope="module")
def one_process(ranks, group) -> dict:
    return ranks(1, f"{RANKS}:single", group, saved_families(ranks))[0]


@pytest.fixture(scope="module")
def two_processes(ranks, group) -> list[dict]:
    return ranks(2, f"{RANKS}:divided", group, saved_families(ranks))


@groups
@pytest.mark.parametrize("feature", [*DIVIDED, "recompute"])
def test_loss_and_gradient_are_those_of_the_plain_model(request, one_process, group, feature):
    names = [name for name in group if has(name, feature)]
    assert names
    for found in [one_process] if feature == "recompute" else request.getfixturevalue("two_processes"):
        for name in names:
            expected, numbers = one_process[name]["plain"], found[name][feature]
            assert abs(numbers["loss"] - expected["loss"]) <= LOSS_TOLERANCE, name
            assert abs(numbers["grad_norm"] / expected["grad_norm"] - 1) <= GRAD_NORM_TOLERANCE, name


@groups
def test_greedy_continuation_under_tensor_parallel_is_that_of_one_process(one_process, two_processes, group):
    for name in filter(lambda name: has(name, "tensor_parallel"), group):
        expected = one_process[name]["plain"]["tokens"]
        assert len(expected[0]) == 8
        assert [found[name]["tensor_parallel"]["tokens"] for found in two_processes] == [expected] * 2, name


@groups
def test_parameters_and_first_loss_are_those_of_the_model(one_process, group):
    """Of ChatGLM's loss there is no closed form."""
    for name in group:
        listed = {one.name: list(one.shape) for one in parameters(tiny_config(name))}
        assert listed == one_process[name]["parameters"], name
        if name != "chatglm":
            expected = ModelShape.from_config(tiny_config(name)).first_loss
            assert one_process[name]["first loss"] == pytest.approx(expected, rel=0.01), name


@groups
def test_packed_samples_do_not_see_each_other(one_process, group):
    packing = [name for name in group if has(name, "packing")]
    assert packing and max(max(one_process[name]["packed"]) for name in packing) <= 1e-5


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == "bloom" else pytest.mark.nightly) for name in NAMES]
)
def test_full_training_halves_the_loss_on_fixed_samples(ranks, name):
    [losses] = ranks(1, f"{RANKS}:overfit", name, 24)
    assert losses[-1] < losses[0] / 2


@every_family
def test_the_row_of_the_table_is_consistent(name):
    family = FAMILIES[name]
    for one in parameters(load_config(family.rehearsal_config)):
        layer = one.name.split(".")[-2]
        assert (layer in family.linear_layers) == (one.kind in (LINEAR, "bias")), one.name
    assert family.lacking.keys() <= FEATURES.keys()
    for feature, reason in family.lacking.items():
        assert "; " in reason, f"{feature}: what works instead?"
    assert ("pipeline_parallel" in family.lacking) == (family.pipeline_class is None)
    assert ("prefix" in family.lacking) == (family.prefix_postprocess is None)


def test_every_family_has_a_published_model_and_cells_of_the_plan():
    """Else it is compared with nothing: tests/families/published.py and cells.py are lists."""
    published = {family_of_config(our_config(make()[0], "config.json")).name for make in ALL.values()}
    planned = {family_of_config(load_config(f"{cell.family}-rehearsal")).name for cell in CELLS}
    assert published == planned == set(FAMILIES)


def test_a_llama_with_alibi_is_a_baichuan():
    assert family_of_config(load_config("baichuan-13b")).name == "baichuan"
    assert family_of_config(load_config("baichuan-7b")).name == "llama"
