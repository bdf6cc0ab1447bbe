"""README's table of recipes, against the recipes themselves; and the links of README and docs."""

import re

import pytest

from docs.tools.pages import place, with_table
from docs.tools.recipe_table import NAME, table
from launch.errors import UserError
from tests.recipes.machine import ROOT
from tests.recipes.test_documents import RECIPES

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_table_of_recipes_is_what_the_planner_says():
    """Else: python -m docs.tools.recipe_table README.md"""
    assert with_table(README, NAME, table(), "README.md") == README


def test_every_recipe_has_its_row():
    shown = place(NAME).search(README)[0]
    assert set(re.findall(r"`make (\S+)` \|$", shown, re.M)) == set(RECIPES)


def test_a_document_without_the_marks_is_refused():
    with pytest.raises(UserError, match="no lines <!-- recipes -->"):
        with_table("# README", NAME, "", "README.md")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)?(?:#[^)]*)?\)", text):
        assert not target or "://" in target or (document.parent / target).exists(), target
