"""What the words of a command line mean, by the checked-in schema."""

import pytest

from launch.config.flag_values import FlagValues, known_flags


@pytest.mark.parametrize(
    ("words", "value"),
    [(None, False), ([], "on"), (["1"], "on"), (["auto"], "auto"), (["0"], False), (["off"], False), (["x"], False)],
)
def test_a_switch_is_its_word_and_false_where_it_is_off(words, value):
    flags = {} if words is None else {"bf16": words}
    assert FlagValues("run_pretrain", flags).bf16 == value


@pytest.mark.parametrize("flag", ["max_steps", "learning_rate"])
def test_numbers_beyond_all_bounds_are_refused(flag):
    for word in ("9" * 400, "-" + "9" * 400, "inf", "nan", "9" * 5000):
        with pytest.raises(ValueError, match="at least .* and at most "):
            known_flags("run_pretrain")[flag].number(word)


def test_a_flag_of_another_shared_module_is_none_and_a_typo_an_error():
    values = FlagValues("launch/run_pretrain.py", {})
    assert (values.max_length, values.max_seq_length) == (None, 2048)
    with pytest.raises(AttributeError, match="max_sequence_lenght"):
        values.max_sequence_lenght  # noqa: B018
    assert FlagValues("run_pretrain", {"save_total_limit": ["-1"]}).save_total_limit == -1  # limits no checkpoints
    with pytest.raises(AttributeError, match="max_steps"):
        values.max_steps = 7


def test_a_negation_counts_where_the_flag_itself_is_not_stated():
    assert FlagValues("run_pretrain", {"no_do_train": []}).do_train is False
    known = next(name for name, one in known_flags("run_pretrain").items() if one.default is True)
    assert getattr(FlagValues("run_pretrain", {f"no_{known}": []}), known) is False
    both = FlagValues("run_pretrain", {f"no_{known}": [], known: ["1"]})
    assert getattr(both, known) is True and both.given(known)
    assert not FlagValues("run_pretrain", {f"no_{known}": []}).given(known)
