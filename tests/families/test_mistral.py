"""A window of attention that the model class ignores: positions end there, and an export has both lengths again."""

import pytest

from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config, parameters
from launch.weights.conversion import our_config, their_config
from tests.families import published


def test_positions_end_with_the_window():
    theirs, _ = published.mistral(max_position_embeddings=64, sliding_window=16)
    ours = our_config(theirs, "config.json")
    assert (ours["max_position_embeddings"], ours["sliding_window"]) == (16, 16)
    again = their_config(ours, "float32")
    assert (again["max_position_embeddings"], again["sliding_window"]) == (64, 16)
    assert our_config(again, "config.json") == ours


def test_without_a_window_all_positions_stay():
    theirs, _ = published.mistral(max_position_embeddings=64)
    assert our_config(theirs, "config.json")["max_position_embeddings"] == 64


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"tie_word_embeddings": True}, "tie_word_embeddings: found True"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling: found"),
        ({"head_dim": 16}, "head_dim: found 16"),
    ],
)
def test_what_the_model_class_lacks_is_refused(wrong, found):
    theirs, _ = published.mistral(**wrong)
    with pytest.raises(UserError, match=found):
        our_config(theirs, "config.json")


def test_the_published_size():
    config = load_config("mistral-7b-v0.3")
    assert family_of_config(config).name == "mistral"
    assert sum(one.size for one in parameters(config)) == 7_248_023_552
