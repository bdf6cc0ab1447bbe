"""README's table of recipes, against the recipes themselves; and the links of README and docs."""

import re

import pytest

from launch.models.layout import Layout
from launch.processes.flags import parse_flags
from tests.recipes.machine import ROOT, Machine
from tests.recipes.test_documents import RECIPES

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def rows() -> dict[str, list[str]]:
    """target -> the cells of its row: file, cards, layout, what, command."""
    table = re.findall(r"^\| \[(\S+)\]\(recipes/\S+\) \| (.*?) \| (.*?) \| (.*?) \| `make (\S+)` \|$", README, re.M)
    return {target: [file, *cells] for file, *cells, target in table}


def test_every_recipe_has_its_row():
    assert set(rows()) == set(RECIPES)


@pytest.mark.parametrize("target", RECIPES)
def test_a_row_says_what_the_recipe_does(target, tmp_path):
    file, cards, layout, _ = rows()[target]
    assert file == f"{RECIPES[target]}.sh"
    text = (ROOT / "recipes" / file).read_text(encoding="utf-8")
    (need,) = re.findall(r"^GPUS=.*$", text, re.M)
    stated = dict(word.split("=") for word in need.split())
    gpus = int(stated["GPUS"])
    assert cards == (f"{gpus} x {stated['GPU_MEMORY_GB']} GB" if gpus else "none")
    words = Machine(tmp_path).print(RECIPES[target])
    script = next(number for number, word in enumerate(words) if word.endswith(".py"))
    found = str(Layout.from_flags(parse_flags(words[script + 1 :]), gpus or int(stated["PROCESSES"])))
    assert layout == ("one card" if found == "1 process" else found.partition(": ")[2])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)?(?:#[^)]*)?\)", text):
        assert not target or "://" in target or (document.parent / target).exists(), target
