"""The benchmark's arithmetic and its refusals; nothing is trained or timed here."""

import pytest

from benchmarks import cpu_training
from launch.errors import UserError


def seconds(ours: list[float], theirs: list[float]) -> dict:
    """A result in which each round's turn has one step."""
    row = cpu_training.ROWS[1]
    return {"seconds": {cpu_training.OURS.name: [[s] for s in ours], row.name: [[s] for s in theirs]}}


def test_speed_is_the_median_step():
    result = seconds([1.0, 2.0, 16.0], [1.0, 1.0, 1.0])
    assert cpu_training.tokens_per_second(result, cpu_training.OURS.name) == 8 * 256 / 2.0


def test_ratio_is_taken_round_by_round():
    """The machine runs at half speed in the second round, for both: the ratio does not move."""
    assert cpu_training.ours_is(seconds([1.0, 2.0, 1.0], [3.0, 6.0, 2.0]), cpu_training.ROWS[1].name) == 3.0


def test_a_row_is_compared_with_ours_of_its_precision():
    ours, half, row = cpu_training.OURS, cpu_training.OURS_BFLOAT16, cpu_training.ROWS[-1]
    assert row.bfloat16 and row.compiled
    result = {"seconds": {ours.name: [[4.0]], half.name: [[2.0]], row.name: [[3.0]]}}
    assert cpu_training.rows({"256x6": result}) == [
        [ours.name, "512", ""],
        [half.name, "1024", ""],
        [row.name, "683", "1.50 x"],
    ]


def test_rows_of_another_torch_follow_those_that_are_not_skipped(tmp_path):
    (tmp_path / "torch-9.9.dist-info").mkdir()
    (tmp_path / "torch-9.9.dist-info" / "METADATA").write_text("Name: torch\nVersion: 9.9\n")
    compiled = cpu_training.COMPILED.name
    skipped = [row.name for row in cpu_training.ROWS[1:] if row.name not in (compiled, cpu_training.OURS_BFLOAT16.name)]
    names = [row.name for row in cpu_training.measured_rows(skipped, tmp_path)]
    assert names == [cpu_training.OURS.name, compiled, cpu_training.OURS_BFLOAT16.name, f"{compiled} (9.9)"]
    for skip, folder in (["none"], None), ([cpu_training.OURS.name], None), ([], tmp_path / "none"):
        with pytest.raises(UserError, match=r"found '(none|Paddle, cpu_fast, fused_ln)', allowed: rows|no torch there"):
            cpu_training.measured_rows(skip, folder)
