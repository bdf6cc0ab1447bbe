"""The table of docs/gpu-speed.md."""

import pytest

from docs.tools.pages import ROOT, place, read
from docs.tools.switch_table import NAME, SWITCHES, table
from tests.docs.pages import sections

PAGE = ROOT / "docs" / "gpu-speed.md"


@pytest.mark.long
def test_the_table_is_what_the_plan_says_today():
    """Else: python -m docs.tools.switch_table docs/gpu-speed.md"""
    assert place(NAME).search(read(PAGE))[0].splitlines()[2:-2] == table().splitlines()


def test_each_switch_of_the_table_is_explained():
    names = {line.partition("**")[0] for section in sections(PAGE) for line in section.prose.split("- **")[1:]}
    assert {switch.title.partition(",")[0] for switch in SWITCHES} <= names
