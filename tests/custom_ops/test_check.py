"""A fused_ln that fails or is wrong is found before it is used."""

import pytest

FOUND_WITH = "tests.custom_ops.check_ranks:found_with"


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("right", ""),
        ("another epsilon", "fused_ln's result is off by 0.0"),
        ("a wrong gradient", "fused_ln's gradient is off by 2, allowed 1e-05"),
        ("not a number", "fused_ln's result is off by nan"),
        ("fails", "the module fused_ln fails here: OSError: no kernel image for this card"),
    ],
)
def test_what_is_found(ranks, kind, found):
    (message,) = ranks(1, FOUND_WITH, kind)
    assert message.startswith(found) and bool(message) == bool(found)
