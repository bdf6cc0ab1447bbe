"""Drawing: what temperature, top_k and top_p let through, how often, and by which seed."""

import numpy as np
import pytest

from launch.errors import UserError
from launch.serving.request import Options, adjusted, draw, random_of, read_sampling
from launch.serving.rest_requests import CompletionRequest

PROBABILITIES = np.array([0.1, 0.4, 0.2, 0.3])
DRAWS = 4000
LOGITS = np.log(PROBABILITIES).astype("float32") + 7


def shares(**options) -> np.ndarray:
    chosen = Options(seed=1, **options)
    drawn = [draw(LOGITS, chosen, random_of(chosen, 0, place)) for place in range(DRAWS)]  # as the tokens of an answer
    return np.bincount(drawn, minlength=4) / DRAWS


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, PROBABILITIES),
        ({"temperature": 0.5}, PROBABILITIES**2 / (PROBABILITIES**2).sum()),
        ({"top_k": 2}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 1}, [0, 1, 0, 0]),
        ({"top_p": 0.69}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_p": 0.71}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"top_p": 1e-9}, [0, 1, 0, 0]),
        ({"top_k": 3, "top_p": 0.75}, [0, 4 / 7, 0, 3 / 7]),  # 7/9 of the three, 7/10 of all
        ({"temperature": 1e-308}, [0, 1, 0, 0]),
    ],
)
def test_what_is_drawn_and_how_often(options, expected):
    assert np.abs(shares(**options) - expected).max() < 0.03


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [4, 3, 0, 1]),
        ({"frequency_penalty": 0.5}, [3, 2.5, 0, 1]),
        ({"presence_penalty": 1.5}, [2.5, 1.5, 0, 1]),
        ({"frequency_penalty": -2, "presence_penalty": 0.25}, [7.75, 4.75, 0, 1]),
        ({"logit_bias": ((2, 100), (0, -7))}, [-3, 3, 100, 1]),
    ],
)
def test_penalties_and_biases(options, expected):
    """Twice the first token, once the second."""
    logits = np.array([4, 3, 0, 1], dtype="float32")
    assert adjusted(logits, Options(**options), [0, 1, 0]).tolist() == expected
    assert logits.tolist() == [4, 3, 0, 1]


def test_a_seed_gives_the_same_numbers_and_another_token_or_answer_of_a_request_others():
    def numbers(seed, answer, place=0):
        return list(random_of(Options(seed=seed), answer, place).random(3))

    assert numbers(5, 0) == numbers(5, 0)
    assert numbers(5, 0) != numbers(5, 1) != numbers(6, 1)
    assert numbers(5, 0) != numbers(5, 0, 1) != numbers(5, 1)
    assert numbers(None, 0) != numbers(None, 0)


def test_a_request_that_names_no_option_has_those_of_the_models_generation_config(tmp_path):
    file, body = tmp_path / "generation_config.json", CompletionRequest(model="a", prompt="b", top_k=3)
    assert read_sampling(tmp_path) == {} and body.options({}).temperature == 1
    file.write_text('{"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "eos_token_id": 2}')
    found = body.options(read_sampling(tmp_path))
    assert (found.temperature, found.top_p, found.top_k) == (0.6, 0.95, 3)
    file.write_text('{"do_sample": false, "temperature": 0.6}')
    assert body.options(read_sampling(tmp_path)).temperature == 0
    for wrong in ("-1", '"x"'):
        file.write_text(f'{{"temperature": {wrong}}}')
        with pytest.raises(UserError, match="generation_config.json: .*Correct or remove it"):
            read_sampling(tmp_path)
