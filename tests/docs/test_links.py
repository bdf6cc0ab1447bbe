"""Links of the pages, in both languages, lead to files and headings; the map of CONTRIBUTING.md has every room,
and no other."""

import re
import subprocess

import pytest

from docs.tools.pages import ENGLISH_PAGES, ROOT, TRANSLATED, chinese_of, read
from tests.docs.pages import FENCED, LINK, anchor, is_there, sections

RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
KERNELS = ROOT / "custom_ops" / "fused_rms_norm" / "README.md"
PAGES = [*ENGLISH_PAGES, *map(chinese_of, TRANSLATED), *RESULTS, KERNELS, ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in LINK.findall(FENCED.sub("", read(page))):
        path, _, heading = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path) if path else page
        assert target.exists(), link
        assert not heading or heading in {anchor(section.title) for section in sections(target)}, link


def folders(*below: str) -> set[str]:
    files = subprocess.check_output(["git", "ls-files", *below], cwd=ROOT, text=True).splitlines()
    depth = len(below)
    return {file.split("/")[depth] for file in files if file.count("/") > depth}


def test_every_folder_is_on_the_map_and_what_is_on_it_is_there():
    blocks = FENCED.findall(read(ROOT / "CONTRIBUTING.md"))
    [shown] = [body for _, body in blocks if "tests/          mirrors the tree" in body]
    named = set(re.findall(r"([a-z_]+)/", shown))
    assert (folders() | folders("launch")) - named == {".ci", ".devcontainer", ".github"}
    for line in shown.splitlines():
        room = ROOT / "launch" if line.startswith("    ") else ROOT
        names = re.match(r"\s*((?:[\w.]+(?:/|\.py|\.sh) ?)+)", line)
        for name in names[1].split() if names else ():
            assert is_there(room / name), name
