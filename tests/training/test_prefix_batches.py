"""Who sees whom in a batch of ChatGLM-6B and GLM, and at which positions."""

import pytest


@pytest.mark.parametrize(("name", "dtype", "mask"), [("chatglm", "bool", 1), ("glm", "float32", 0)])
def test_the_prompt_is_seen_in_both_directions_and_the_answer_from_left_to_right(ranks, name, dtype, mask):
    """The prompt's last token begins the answer: it is seen from there on only. mask: where the first prompt has the
    token that the answer stands for, the last but one of ChatGLM's, the last but two of GLM's."""
    [found] = ranks(1, "tests.training.prefix_batches_ranks:batch", name)
    assert found["input_ids"][1] == [[5, 6, 7, 8], [5, 6, 0, 0]]
    assert found["attention_mask"] == [
        dtype,
        [
            [[[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]],
            [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]],
        ],
    ]
    assert found["position_ids"] == ["int64", [[[0, 1, mask, mask], [0, 0, 1, 2]], [[0, 0, 0, 0], [0, 1, 2, 3]]]]
