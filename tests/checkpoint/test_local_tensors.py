"""How the tensors of a rank are read and filled on a card, as far as a CPU shows it."""

ELEMENTS = 64 << 12


def test_tensors_on_a_card(ranks, tmp_path):
    """bfloat16 is copied once more, in host memory: as NumPy's uint16; AdamW's powers of beta lie there."""
    [found] = ranks(1, "tests.checkpoint.tensor_ranks:facts", str(tmp_path))
    writes, another, tensors = found.pop("tensors read for a model")
    assert writes == tensors > 0 and another == 0, "a rank that writes no model reads no tensor of it"
    assert found == {
        "read from a buffer, float32": {"allocated": 4 * ELEMENTS, "equal": True},  # a tensor, not the buffer around it
        "read from a buffer, bfloat16": {"allocated": (2 + 2) * ELEMENTS, "equal": True},
        "where filled": ["the card", "Place(cpu)"],
        "waits for the card": ["synchronize", "read"],
        "device of the writing thread": [["card 3", False], ["write", False]],
    }
