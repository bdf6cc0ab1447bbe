"""Tables that a tool writes into a page are what it writes today, and where it cannot, it says so. Those that take long
are held by CI: `make regenerate CHECK=1`."""

import json
import re
from importlib import import_module

import pytest

from docs.tools import demo_picture, regenerate
from docs.tools.pages import ENGLISH_PAGES, ROOT, read, with_tables
from docs.tools.switch_table import SWITCHES
from launch.errors import UserError
from tests.docs.pages import sections

TABLES = [("certify_table", "docs/certify.md"), ("family_table", "docs/families.md")]


@pytest.mark.parametrize(("tool", "page"), TABLES)
def test_the_page_has_what_the_tool_writes(tool, page, tmp_path):
    """Else: make regenerate"""
    copy = tmp_path / "page.md"
    copy.write_text(read(ROOT / page))
    import_module(f"docs.tools.{tool}").main([str(copy)])
    assert copy.read_text() == read(ROOT / page)
    copy.write_text("# a page without marks")
    with pytest.raises(UserError, match="no lines? <!-- "):
        import_module(f"docs.tools.{tool}").main([str(copy)])


def test_regenerate_knows_each_marked_table_and_contributing_has_its_list():
    """Else: make regenerate, or a row of docs/tools/regenerate.py"""
    page = ROOT / "CONTRIBUTING.md"
    assert with_tables(read(page), regenerate.TABLES, page.name) == read(page)
    written = {name for files in regenerate.GENERATED for name in files.split()}
    marked = {str(page.relative_to(ROOT)) for page in ENGLISH_PAGES if re.search("^<!-- end of", read(page), re.M)}
    assert marked and marked <= written


def test_regenerate_names_what_was_out_of_date_and_what_failed(tmp_path, monkeypatch, capsys):
    writer = "-c \"open('made.json', 'w').write('2')\""
    monkeypatch.setattr(regenerate, "ROOT", tmp_path)
    monkeypatch.setattr(regenerate, "GENERATED", {"made.json": writer, "other.py": "-m no_such_module.protoc"})
    monkeypatch.setattr(regenerate, "stored_results", list)
    monkeypatch.setattr(regenerate, "CHINESE", {})
    (tmp_path / "CONTRIBUTING.md").write_text(
        f"<!-- generated -->\n\n{regenerate.table()}\n\n<!-- end of generated -->"
    )
    (tmp_path / "made.json").write_text("1")
    with pytest.raises(UserError, match="^out of date: made.json. Run make regenerate"):
        regenerate.main(["--check"])
    assert (tmp_path / "made.json").read_text() == "2"
    assert "left as it is: other.py, which needs no_such_module" in capsys.readouterr().out
    assert regenerate.main(["--check"]) == 0
    monkeypatch.setattr(regenerate, "GENERATED", {"made.json": "-c \"raise SystemExit('broken')\""})
    with pytest.raises(UserError, match="exit code 1\nbroken"):
        regenerate.main([])


def test_the_picture_of_the_demo_and_the_page_show_its_stored_results():
    """Else: make regenerate"""
    results = json.loads(read(demo_picture.RESULTS))
    assert demo_picture.picture(results) == read(demo_picture.RESULTS.with_suffix(".svg"))
    (was, now), (low, high), (first, last) = (results[key] for key in ("right", "difference", "perplexity"))
    page = read(ROOT / "docs" / "finetune.md")
    assert f"| right answers | {100 * was:.0f} % | {100 * now:.0f} % | {100 * (now - was):+.0f} % [" in page
    assert f" [{100 * low:+.0f} %, {100 * high:+.0f} %] |\n| perplexity of other" in page
    assert f"| perplexity of other text | {first:.2f} | {last:.2f} | {100 * (last / first - 1):+.1f} % |" in page


def test_each_switch_of_the_table_is_explained():
    page = sections(ROOT / "docs" / "gpu-speed.md")
    names = {line.partition("**")[0] for section in page for line in section.prose.split("- **")[1:]}
    assert {switch.title.partition(",")[0] for switch in SWITCHES} <= names
