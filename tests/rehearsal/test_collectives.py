"""install(): when it may be called, and what it leaves as an error."""

import pytest

CASES = "tests.rehearsal.collectives_ranks"


def test_a_second_call_does_nothing(ranks):
    assert ranks(1, f"{CASES}:install_twice") == [[True, True, True]]


@pytest.mark.long
def test_too_late(ranks):
    for message in ranks(2, f"{CASES}:install_late"):
        assert message.startswith("RuntimeError: collectives.install() must come before TrainingArguments")


@pytest.mark.parametrize("kind", ["cuda", pytest.param("xpu", marks=pytest.mark.nightly)])
def test_refused_on_a_build_for_cards(ranks, kind):
    ((message, untouched),) = ranks(1, f"{CASES}:install_on_a_gpu_build", kind)
    assert message.startswith("UserError: device: cpu with several processes is a rehearsal")
    assert "--device gpu" in message
    assert untouched


@pytest.mark.long
def test_all_to_all_is_an_error(ranks):
    for message in ranks(2, f"{CASES}:all_to_all"):
        assert message.startswith("NotImplementedError")
        assert "does not support all_to_all" in message
