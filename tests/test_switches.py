"""What a three-state switch accepts."""

import pytest

from launch.switches import switch


@pytest.mark.parametrize(
    "value, choice",
    [
        ("auto", "auto"),
        ("ON", "on"),
        ("1", "on"),
        ("true", "on"),
        ("0", "off"),
        ("False", "off"),
        ("required", "required"),
    ],
)
def test_accepted_values(value, choice):
    assert switch(value) == choice


def test_others_are_refused_with_the_choices():
    with pytest.raises(ValueError, match="'maybe', allowed: auto, on, off, required"):
        switch("maybe")
