"""Links of the pages, in both languages: the file is there, and the heading."""

import pytest

from docs.tools.pages import ENGLISH_PAGES, ROOT, chinese_of, read
from tests.docs.pages import FENCED, LINK, anchor, sections

PAGES = [*ENGLISH_PAGES, *map(chinese_of, ENGLISH_PAGES), ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in LINK.findall(FENCED.sub("", read(page))):
        path, _, heading = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path) if path else page
        assert target.exists(), link
        assert not heading or heading in {anchor(section.title) for section in sections(target)}, link
