"""OPT's mask in bfloat16."""

import pytest

SMALLEST = "tests.upstream.opt_ranks:smallest"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_padding_is_masked_in_every_dtype(ranks, dtype):
    assert ranks(1, SMALLEST, dtype, True)[0] < -3e38


def test_upstream_fails_in_bfloat16(ranks):
    with pytest.raises(AssertionError, match="'NoneType' object has no attribute 'min'"):
        ranks(1, SMALLEST, "bfloat16", False)
