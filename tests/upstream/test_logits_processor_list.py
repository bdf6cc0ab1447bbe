"""generate() with a logits processor of one's own."""

import pytest

USED = "tests.upstream.logits_processor_ranks:used"


def test_uses_it_after_its_own(ranks):
    assert ranks(1, USED, True) == [["MinLengthLogitsProcessor", "OwnChoice"]]


def test_upstream_fails(ranks):
    with pytest.raises(AssertionError, match="'LogitsProcessorList' object is not iterable"):
        ranks(1, USED, False)
