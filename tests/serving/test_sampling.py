"""Drawing: what temperature, top_k and top_p let through, how often, and by which seed."""

import numpy as np
import pytest

from launch.serving.request import Options, draw, random_of

PROBABILITIES = np.array([0.1, 0.4, 0.2, 0.3])
DRAWS = 4000
LOGITS = np.log(PROBABILITIES).astype("float32") + 7


def shares(**options) -> np.ndarray:
    chosen = Options(seed=1, **options)
    random = random_of(chosen, 0)
    return np.bincount([draw(LOGITS, chosen, random) for _ in range(DRAWS)], minlength=4) / DRAWS


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


def test_a_seed_gives_the_same_numbers_and_another_answer_of_a_request_others():
    def numbers(seed, answer):
        return list(random_of(Options(seed=seed), answer).random(3))

    assert numbers(5, 0) == numbers(5, 0)
    assert numbers(5, 0) != numbers(5, 1) != numbers(6, 1)
    assert numbers(None, 0) != numbers(None, 0)
