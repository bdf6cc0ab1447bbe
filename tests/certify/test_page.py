"""docs/certify.md: its table is what the command has."""

from docs.tools.certify_table import main
from docs.tools.pages import ROOT, read
from launch.certify.checks import all_checks


def test_the_table_of_the_page_is_current(tmp_path):
    """Else: python -m docs.tools.certify_table docs/certify.md"""
    page = tmp_path / "page.md"
    page.write_text(read(ROOT / "docs" / "certify.md"))
    main([str(page)])
    assert page.read_text() == read(ROOT / "docs" / "certify.md")


def test_names_and_limits():
    checks = all_checks()
    assert len({check.name for check in checks}) == len(checks)
    for check in checks:
        assert check.limit >= 2 * (check.seconds + check.several), f"{check.name} is ended before it can be done"
    assert sum(check.seconds_for(False, 1) for check in checks) <= 40 * 60, "the page promises 40 minutes on one card"
