"""Random numbers go on where a checkpoint has them, also where the rank sees other cards."""


def test_what_is_drawn_is_drawn_again(ranks):
    [found] = ranks(1, "tests.checkpoint.random_ranks:drawn", 7)
    assert len(found) == 7
    for case, numbers in found.items():
        assert numbers.keys() == {"paddle", "tensor parallel"} | ({"python", "numpy"} if case == "here" else set())
        for kind, (first, following, again) in numbers.items():
            assert first != following and again == first, (case, kind)
