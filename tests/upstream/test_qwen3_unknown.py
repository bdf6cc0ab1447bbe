"""AutoConfig and AutoModel of paddlenlp, and Qwen3."""

import pytest

RANKS = "tests.upstream.qwen3_unknown_ranks"


@pytest.fixture(scope="module")
def directory(ranks, tmp_path_factory) -> str:
    target = str(tmp_path_factory.mktemp("qwen3"))
    ranks(1, f"{RANKS}:save", target)
    return target


def test_find_its_classes(ranks, directory):
    [found] = ranks(1, f"{RANKS}:loaded", directory, True)
    assert found == ["Qwen3Config", "Qwen3Model", "Qwen3ForCausalLM"]


def test_upstream_does_not(ranks, directory):
    with pytest.raises(AssertionError, match="Unable to parse 'architectures'"):
        ranks(1, f"{RANKS}:loaded", directory, False)


def test_a_head_size_that_is_not_stated_divides_the_hidden_size(ranks):
    [shapes] = ranks(1, f"{RANKS}:shapes_without_head_dim")
    assert shapes == {"q_proj": [64, 64], "k_proj": [64, 32], "o_proj": [64, 64], "q_norm": [16]}
