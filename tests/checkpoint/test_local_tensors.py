"""How the tensors of a rank are read and filled on a card, as far as a CPU shows it."""

import pytest

ELEMENTS = 64 << 12


@pytest.fixture(scope="module")
def found(ranks, tmp_path_factory):
    return ranks(1, "tests.checkpoint.tensor_ranks:facts", str(tmp_path_factory.mktemp("models")))[0]


def test_reading_copies_what_a_tensor_is_not_the_buffer_around_it(found):
    """bfloat16 is copied once more, in host memory: as NumPy's uint16."""
    for dtype, copied in (("float32", 4), ("bfloat16", 2 + 2)):
        assert found[f"read from a buffer, {dtype}"] == {"allocated": copied * ELEMENTS, "equal": True}


def test_filling_leaves_a_tensor_where_it_lies(found):
    """AdamW's powers of beta lie in host memory."""
    assert found["where filled"] == ["the card", "Place(cpu)"]


def test_tensors_are_given_when_the_card_has_done_its_work(found):
    assert found["waits for the card"] == ["synchronize", "read"]


def test_a_thread_that_writes_uses_the_card_of_its_rank(found):
    assert found["device of the writing thread"] == [["card 3", False], ["write", False]]


def test_a_rank_that_writes_no_model_reads_no_tensor_of_it(found):
    writes, another, tensors = found["tensors read for a model"]
    assert writes == tensors > 0 and another == 0
