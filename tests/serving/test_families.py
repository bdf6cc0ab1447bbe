"""Every family answers in a batch of the server as it does alone: refilled at once where its texts fit into one row."""

import pytest

from launch.families.registry import FAMILIES


@pytest.mark.nightly
def test_rows_of_a_batch_are_answered_as_each_alone(ranks, tmp_path):
    ranks(1, "tests.families.family_ranks:save_all", list(FAMILIES), str(tmp_path))
    [found] = ranks(1, "tests.serving.family_ranks:served_and_generated", str(tmp_path), list(FAMILIES))
    whole = {name for name, (*_, steps) in found.items() if steps == 2}
    assert whole == {"chatglm", "glm"}
    for name, (together, alone, ends, _) in found.items():
        assert together == alone, name
        assert ends == ["length"] * len(ends) and len({tuple(answer) for answer in alone}) > 1, name
