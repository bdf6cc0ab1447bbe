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

RANKS = "tests.families.family_ranks"
NAMES = list(FAMILIES)
LOSS_TOLERANCE = 2e-6
GRAD_NORM_TOLERANCE = 1e-5

every_family = pytest.mark.parametrize("name", NAMES)


def having(feature: str) -> list[str]:
    return [name for name in NAMES if feature not in FAMILIES[name].lacking]


def tiny_config(name: str) -> dict:
    """As tests/families/family_ranks.py builds it."""
    layers = {"n_layer": 2, "num_layers": 2, "num_hidden_layers": 2}
    config = load_config(FAMILIES[name].rehearsal_config)
    return config | {key: value for key, value in layers.items() if key in config} | {"vocab_size": 256}


@pytest.fixture(scope="module")
def models(ranks, tmp_path_factory) -> str:
    directory = str(tmp_path_factory.mktemp("families"))
    ranks(1, f"{RANKS}:save_all", NAMES, directory)
    return directory


@pytest.fixture(scope="module")
def one_process(ranks, models) -> dict:
    return ranks(1, f"{RANKS}:numbers_all", NAMES, models, 1)[0]


def run(ranks, models, n: int, feature: str, **changes) -> list[dict]:
    return ranks(n, f"{RANKS}:numbers_all", having(feature), models, n, changes)


@pytest.fixture(scope="module")
def tensor_parallel(ranks, models) -> list[dict]:
    return run(ranks, models, 2, "tensor_parallel")


@pytest.fixture(scope="module")
def sequence_parallel(ranks, models) -> list[dict]:
    return run(ranks, models, 2, "sequence_parallel", sequence_parallel=True)


@pytest.fixture(scope="module")
def recompute(ranks, models) -> list[dict]:
    return run(ranks, models, 1, "recompute", recompute=True)


@pytest.fixture(scope="module")
def flash_attention(ranks, models) -> list[dict]:
    """On two processes: each has the slopes of its own heads where there is ALiBi."""
    return run(ranks, models, 2, "flash_attention", use_flash_attention=True)


@pytest.mark.parametrize(
    ("feature", "name"),
    [
        (feature, name)
        for feature in ("tensor_parallel", "sequence_parallel", "recompute", "flash_attention")
        for name in having(feature)
    ],
)
def test_loss_and_gradient_are_those_of_the_plain_model(request, one_process, feature, name):
    expected = one_process[name]
    for found in request.getfixturevalue(feature):
        assert abs(found[name]["loss"] - expected["loss"]) <= LOSS_TOLERANCE
        assert abs(found[name]["grad_norm"] / expected["grad_norm"] - 1) <= GRAD_NORM_TOLERANCE


@pytest.mark.parametrize("name", having("tensor_parallel"))
def test_greedy_continuation_under_tensor_parallel_is_that_of_one_process(one_process, tensor_parallel, name):
    for found in tensor_parallel:
        assert found[name]["tokens"] == one_process[name]["tokens"]
        assert len(found[name]["tokens"][0]) == 8


@pytest.fixture(scope="module")
def overfitted(ranks) -> dict:
    return ranks(1, f"{RANKS}:overfit_all", NAMES, 24)[0]


@pytest.mark.long
@every_family
def test_full_training_halves_the_loss_on_fixed_samples(overfitted, name):
    losses = overfitted[name]
    assert losses[-1] < losses[0] / 2


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"chatglm"}))
def test_first_loss_on_random_samples_is_the_closed_form(overfitted, name):
    assert overfitted[name][0] == pytest.approx(ModelShape.from_config(tiny_config(name)).first_loss, rel=0.01)


@pytest.fixture(scope="module")
def packed(ranks, models) -> dict:
    return ranks(1, f"{RANKS}:packed_all", having("packing"), models)[0]


@pytest.mark.parametrize("name", having("packing"))
def test_packed_samples_do_not_see_each_other(packed, name):
    assert max(packed[name]) <= 1e-5


@every_family
def test_linear_layers_are_listed_by_name(name):
    for one in parameters(load_config(FAMILIES[name].rehearsal_config)):
        layer = one.name.split(".")[-2]
        assert (layer in FAMILIES[name].linear_layers) == (one.kind in (LINEAR, "bias")), one.name


@pytest.fixture(scope="module")
def states(ranks) -> dict:
    return ranks(1, f"{RANKS}:state_all", NAMES)[0]


@every_family
def test_parameters_are_those_of_the_model(states, name):
    listed = {one.name: list(one.shape) for one in parameters(tiny_config(name))}
    assert listed == states[name]


@every_family
def test_a_feature_that_is_lacking_has_a_reason_and_what_works(name):
    family = FAMILIES[name]
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
