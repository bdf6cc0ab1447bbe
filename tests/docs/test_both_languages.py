"""The Chinese pages say what the English ones do: the same commands, tables, numbers, names and links."""

from pathlib import Path

import pytest

from docs.tools.chinese import CELLS, MARKED, phrases, up_to_date
from docs.tools.pages import CHINESE, ENGLISH_PAGES, NUMBER, ROOT, TRANSLATED, chinese_of, read
from tests.docs.pages import CODE, sections


def test_the_pages_of_users_and_no_others_are_there_in_both_languages():
    assert {page.name for page in (ROOT / "docs" / "zh").glob("*.md")} == {page.name for page in TRANSLATED[1:]}
    assert [page for page in ENGLISH_PAGES if "[中文](" in read(page)] == [
        page for page in ENGLISH_PAGES if page in TRANSLATED
    ]


def test_every_phrase_is_in_a_table_of_both_languages():
    """Else it is left over from a table that has moved or changed."""
    shown = {
        NUMBER.sub("#", part)
        for page in TRANSLATED
        for _, body, _ in MARKED.findall(read(page))
        for line in body.splitlines()
        for part in ([cell.strip() for cell in CELLS.split(line)] if line.startswith("|") else [line.strip()])
    }
    assert phrases().keys() - shown == set()


@pytest.mark.parametrize("english", TRANSLATED, ids=lambda page: page.stem)
def test_each_leads_to_the_other_and_has_the_same_commands_tables_and_numbers(english):
    """Tables: rows, columns, and in each cell the same code and numbers. Where they differ in those that are generated:
    python -m docs.tools.chinese"""
    chinese = chinese_of(english)
    assert up_to_date(english, phrases()) == read(chinese)
    there, back = read(english).splitlines()[2], read(chinese).splitlines()[2]
    assert there == f"[中文]({chinese.relative_to(english.parent)})"
    assert back == ("[English](README.md)" if english.parent == ROOT else f"[English](../{english.name})")
    for ours, theirs in zip(sections(english), sections(chinese_of(english)), strict=True):
        assert theirs.level == ours.level, ours.title
        assert theirs.commands == ours.commands, ours.title
        assert theirs.numbers == ours.numbers, ours.title
        assert theirs.codes == ours.codes, ours.title
        for table, other in zip(ours.tables, theirs.tables, strict=True):
            for row, same in zip(table, other, strict=True):
                assert [facts(cell) for cell in same] == [facts(cell) for cell in row], ours.title
        expected = sorted(target(english, link) for link in ours.links)
        assert sorted(target(chinese_of(english), link) for link in theirs.links) == expected, ours.title


def facts(cell: str) -> tuple[list[str], list[str]]:
    return sorted(CODE.findall(cell)), sorted(NUMBER.findall(CODE.sub("", cell)))


def english_of(page: Path) -> Path:
    """Return the English page of a Chinese one; any other file is itself."""
    if page.parent == CHINESE:
        return ROOT / "docs" / page.name
    return page.with_name(page.name.replace(".zh.md", ".md"))


def target(page: Path, link: str) -> str:
    """What a link leads to, whatever the language of the page that it stands on; its anchor is test_links' business."""
    path = link.partition("#")[0]
    if "://" in link or not path:
        return link if path else str(english_of(page))
    return str(english_of((page.parent / path).resolve()))
