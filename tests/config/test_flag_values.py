"""What the words of a command line mean, by the checked-in schema."""

import pytest

from launch.config.flag_values import FlagValues, load_schema, read_number, switch


@pytest.mark.parametrize(
    ("words", "value"),
    [(None, False), ([], "on"), (["1"], "on"), (["auto"], "auto"), (["0"], False), (["off"], False), (["x"], False)],
)
def test_a_switch_is_its_word_and_false_where_it_is_off(words, value):
    flags = {} if words is None else {"bf16": words}
    assert FlagValues("run_pretrain", flags).bf16 == value


@pytest.mark.parametrize("word", ["9" * 400, "-" + "9" * 400, "inf", "nan", "9" * 5000])
@pytest.mark.parametrize("flag", ["max_steps", "learning_rate"])
def test_numbers_beyond_all_bounds_are_refused(flag, word):
    with pytest.raises(ValueError, match="at least .* and at most "):
        read_number(load_schema("run_pretrain")[flag], word)


def test_minus_one_limits_no_checkpoints():
    assert FlagValues("run_pretrain", {"save_total_limit": ["-1"]}).save_total_limit == -1


@pytest.mark.parametrize(
    "value, choice",
    [
        ("auto", "auto"),
        ("ON", "on"),
        ("1", "on"),
        ("true", "on"),
        ("0", "off"),
        ("False", "off"),
        ("required", "required"),
    ],
)
def test_words_of_a_switch(value, choice):
    assert switch(value) == choice


def test_other_words_of_a_switch_are_refused():
    with pytest.raises(ValueError, match="'maybe', allowed: auto, on, off, required"):
        switch("maybe")
