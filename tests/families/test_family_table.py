"""Documents show the table of families as it is."""

from pathlib import Path

import pytest

from docs.tools.family_table import NAME, main, table
from docs.tools.pages import with_table
from launch.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["docs/families.md"])
def test_documents_are_up_to_date(page):
    """Else: python -m docs.tools.family_table FILE"""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert with_table(text, NAME, table(), page) == text


def test_a_row_and_a_reason():
    rows = table().splitlines()
    assert rows[0].count("|") == rows[6].count("|")
    opt = next(row for row in rows if row.startswith("| OPT |"))
    assert opt.count("| - ") == 6
    assert "- recompute, OPT: its layers ignore the flag; a smaller micro batch with more accumulation works." in rows


def test_a_document_without_marks(tmp_path):
    (tmp_path / "a.md").write_text("# A")
    with pytest.raises(UserError, match=r"a\.md: no lines <!-- families -->"):
        main([str(tmp_path / "a.md")])
