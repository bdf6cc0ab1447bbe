"""Bring what the Chinese pages share with the English ones up to date.

    python -m docs.tools.chinese

What commands have written into an English page, between two comments, is put between the same two comments of the
Chinese page, translated by docs/zh/phrases/*.json: a whole cell or line, with # for each number; summaries of recipes
as data_tools/locale/zh.po has them. What is not among the phrases (names, messages that a program prints) stays as it
is.
"""

import json
import re
import sys
from pathlib import Path

from data_tools import language
from data_tools.cli import Parser
from docs.tools.pages import CHINESE, NUMBER, ROOT, TRANSLATED, chinese_of, read
from launch.config.recipe_file import load_recipes
from launch.guard import guarded

MARKED = re.compile(r"^(<!-- (?!end).*? -->\n)(.*?)(^<!-- end.*? -->)$", re.M | re.S)
CELLS = re.compile(r"(?<!\\)\|")


def phrases() -> dict[str, str]:
    files = sorted((CHINESE / "phrases").glob("*.json"))
    known = {english: chinese for file in files for english, chinese in json.loads(read(file)).items()}
    summaries = (recipe.summary for recipe in load_recipes(ROOT))
    return known | {NUMBER.sub("#", one): NUMBER.sub("#", language.translated(one)) for one in summaries}


def up_to_date(english: Path, known: dict[str, str]) -> str:
    """The text of the Chinese page with the English page's generated blocks. Raises ValueError where the marks of the
    two differ."""
    text = read(chinese_of(english))
    blocks = MARKED.findall(read(english))
    if [mark for mark, _, _ in MARKED.findall(text)] != [mark for mark, _, _ in blocks]:
        raise ValueError(f"{chinese_of(english).name}: not the comments of {english.name}, in its order")
    bodies = iter(translated(body, known) for _, body, _ in blocks)
    return MARKED.sub(lambda match: match[1] + next(bodies) + match[3], text)


def translated(body: str, known: dict[str, str]) -> str:
    return "".join(_line(line, known) for line in body.splitlines(keepends=True))


def _line(line: str, known: dict[str, str]) -> str:
    if not line.startswith("|"):
        return _phrase(line.strip(), known) + "\n"
    return "|".join(f" {_phrase(cell.strip(), known)} " if cell.strip() else cell for cell in CELLS.split(line))


def _phrase(text: str, known: dict[str, str]) -> str:
    numbers = iter(NUMBER.findall(text))
    chinese = known.get(NUMBER.sub("#", text))
    return re.sub("#", lambda match: next(numbers), chinese) if chinese else text


def main(argv: list[str]) -> None:
    Parser("python -m docs.tools.chinese", __doc__).parse_args(argv)
    known = phrases()
    for english in TRANSLATED:
        chinese_of(english).write_text(up_to_date(english, known), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
