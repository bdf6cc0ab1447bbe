"""Random numbers go on where a checkpoint has them."""


def test_what_is_drawn_is_drawn_again(ranks):
    [found] = ranks(1, "tests.checkpoint.state.random_ranks:drawn_again", 7)
    assert found.keys() == {"python", "numpy", "paddle", "tensor parallel"}
    for kind, (first, following, again) in found.items():
        assert first != following and again == first, kind
