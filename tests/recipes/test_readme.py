"""README's table of recipes, against the recipes themselves."""

import pytest

from docs.tools.pages import with_table
from docs.tools.recipe_table import NAME, table
from launch.errors import UserError
from tests.recipes.machine import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_the_table_of_recipes_is_what_the_planner_says():
    """Else: python -m docs.tools.recipe_table README.md"""
    assert with_table(README, NAME, table(), "README.md") == README


def test_a_document_without_the_marks_is_refused():
    with pytest.raises(UserError, match="no lines <!-- recipes -->"):
        with_table("# README", NAME, "", "README.md")
