"""Documents show the table of families as it is."""

from pathlib import Path

import pytest

from launch.errors import UserError
from launch.models.family_table import NAME, main, table
from launch.pages import place, with_table

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", [ROOT / "docs" / "families.md", *ROOT.glob("README*.md")], ids=lambda path: path.name)
def test_documents_are_up_to_date(path):
    """Else: python -m launch.models.family_table FILE"""
    text = path.read_text(encoding="utf-8")
    if path.name == "families.md" or place(NAME).search(text):
        assert with_table(text, NAME, table(), path.name) == text


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
