"""Tables that a tool writes into a page are what it writes today, and where it cannot, it says so."""

from importlib import import_module

import pytest

from docs.tools.pages import ROOT, read
from docs.tools.switch_table import SWITCHES
from launch.errors import UserError
from tests.docs.pages import sections

LONG = pytest.mark.long
TABLES = [
    ("certify_table", "docs/certify.md"),
    ("family_table", "docs/families.md"),
    pytest.param("guide_tables", "docs/low-memory.md", marks=LONG),
    pytest.param("recipe_table", "README.md", marks=LONG),
    pytest.param("recipe_table", "docs/recipes.md", marks=LONG),
    pytest.param("switch_table", "docs/gpu-speed.md", marks=LONG),
]


@pytest.mark.parametrize(("tool", "page"), TABLES)
def test_the_page_has_what_the_tool_writes(tool, page, tmp_path):
    """Else: python -m docs.tools.TOOL PAGE"""
    copy = tmp_path / "page.md"
    copy.write_text(read(ROOT / page))
    import_module(f"docs.tools.{tool}").main([str(copy)])
    assert copy.read_text() == read(ROOT / page)
    copy.write_text("# a page without marks")
    with pytest.raises(UserError, match="no lines? <!-- "):
        import_module(f"docs.tools.{tool}").main([str(copy)])


def test_each_switch_of_the_table_is_explained():
    page = sections(ROOT / "docs" / "gpu-speed.md")
    names = {line.partition("**")[0] for section in page for line in section.prose.split("- **")[1:]}
    assert {switch.title.partition(",")[0] for switch in SWITCHES} <= names
