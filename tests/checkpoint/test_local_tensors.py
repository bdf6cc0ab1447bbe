"""How the tensors of a rank are read and filled on a card, as far as a CPU shows it."""

import pytest

RANKS = "tests.checkpoint.tensor_ranks"
ELEMENTS = 64 << 12


@pytest.mark.parametrize(("dtype", "copied"), [("float32", 4), ("bfloat16", 2 + 2)])
def test_reading_copies_what_a_tensor_is_not_the_buffer_around_it(ranks, dtype, copied):
    """bfloat16 is copied once more, in host memory: as NumPy's uint16."""
    [found] = ranks(1, f"{RANKS}:read_from_a_buffer", dtype)
    assert found == {"allocated": copied * ELEMENTS, "equal": True}


def test_filling_leaves_a_tensor_where_it_lies(ranks):
    """AdamW's powers of beta lie in host memory."""
    assert ranks(1, f"{RANKS}:where_filled") == [["the card", "Place(cpu)"]]


def test_tensors_are_given_when_the_card_has_done_its_work(ranks):
    assert ranks(1, f"{RANKS}:waits_for_the_card") == [["synchronize", "read"]]


def test_a_thread_that_writes_uses_the_card_of_its_rank(ranks):
    assert ranks(1, f"{RANKS}:device_of_the_writing_thread") == [[["card 3", False], ["write", False]]]


def test_a_rank_that_writes_no_model_reads_no_tensor_of_it(ranks, tmp_path):
    [[writes, another, tensors]] = ranks(1, f"{RANKS}:tensors_read_for_a_model", str(tmp_path))
    assert writes == tensors > 0 and another == 0
