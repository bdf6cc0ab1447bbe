"""What the words of a command line mean, by the checked-in schema."""

import pytest

from launch.models.flag_values import FlagValues


@pytest.mark.parametrize(
    ("words", "value"),
    [(None, False), ([], "on"), (["1"], "on"), (["auto"], "auto"), (["0"], False), (["off"], False), (["x"], False)],
)
def test_a_switch_is_its_word_and_false_where_it_is_off(words, value):
    flags = {} if words is None else {"bf16": words}
    assert FlagValues("run_pretrain", flags).bf16 == value
