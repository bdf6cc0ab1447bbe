"""Host memory, as far as a pretended stream shows what a card would do."""


def test_host_memory_is_held_until_its_copy_is_done(ranks):
    """Also where others follow it: whoever gets it from the allocator may write at once."""
    [held] = ranks(1, "tests.offload.offload_ranks:host_memory_of_copies")
    assert held == [
        [True],
        [True, True],
        [True, False, True],
        [False, False, False],
        [False, False, False],
    ]
