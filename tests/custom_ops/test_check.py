"""A fused_ln that fails or is wrong is found before it is used."""

import pytest

FOUND_WITH = "tests.custom_ops.check_ranks:found_with"


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("right", ""),
        ("another epsilon", "the module fused_ln's result is off by 0.0"),
        ("a wrong gradient", "the module fused_ln's gradient is off by 2, allowed 1e-05"),
        ("not a number", "the module fused_ln's result is off by nan"),
        ("fails", "the module fused_ln fails here: OSError: no kernel image for this card"),
    ],
)
def test_what_is_found(ranks, kind, found):
    (message,) = ranks(1, FOUND_WITH, kind, "float32", "float32")
    assert message.startswith(found) and bool(message) == bool(found)


@pytest.mark.parametrize("dtypes", [("bfloat16", "bfloat16"), ("float16", "float16"), ("bfloat16", "float32")])
def test_it_is_tried_in_the_dtypes_of_the_run(ranks, dtypes):
    assert ranks(1, FOUND_WITH, "right", *dtypes) == [""]
    (message,) = ranks(1, FOUND_WITH, "another epsilon", *dtypes)
    allowed = {"bfloat16": "2e-02", "float16": "2e-03", "float32": "1e-05"}[dtypes[1]]
    assert message.startswith("the module fused_ln's result is off by 0.0") and message.endswith(f"allowed {allowed}")
