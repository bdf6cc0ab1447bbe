"""Draw README's picture of make demo-chat: some of its questions, and the answers before and after.

    python -m docs.tools.demo_picture

docs/images/demo-chat.json is the results.json of a run of make demo-chat; demo-chat.svg is drawn from it.
"""

import json
import sys
from collections.abc import Sequence
from html import escape

from rich.console import Console
from rich.text import Text

from data_tools.cli import Parser
from docs.tools.pages import ROOT
from launch.commands.demo_chat import scores
from launch.guard import guarded

RESULTS = ROOT / "docs" / "images" / "demo-chat.json"
SHOWN = (0, 1, 3, 4, 8)  # of the ten questions; one that is wrong afterwards, too
WIDTHS = (34, 40, 34)  # of the columns, in characters
CHARACTER, LINE, MARGIN = 8, 18, 12  # pixels
RIGHT, WRONG, PLAIN, GRAY = "#1a7f37", "#cf222e", "#1f2328", "#d1d9e0"


def picture(results: dict) -> str:
    """Return an SVG of the questions that are shown, and the scores of all."""
    before, after = results["before"], results["after"]
    rows: list[Sequence[tuple[str, str]]] = [[(name, PLAIN) for name in ("question", "before", "after")]]
    for number in SHOWN:
        both = [(one["answers"][number], one["right"][number]) for one in (before, after)]
        said = [("✓ " + text, RIGHT) if right else ("✗ " + text, WRONG) for text, right in both]
        rows.append([(before["questions"][number], PLAIN), *said])
    parts, top, width = [], MARGIN, (sum(WIDTHS) + 2 * len(WIDTHS)) * CHARACTER + MARGIN
    for row in rows:
        cells = [_lines(text, columns) for (text, _), columns in zip(row, WIDTHS, strict=True)]
        left = MARGIN
        for lines, (_, color), columns in zip(cells, row, WIDTHS, strict=True):
            parts += [_text(left, top + LINE * place, line, color) for place, line in enumerate(lines, 1)]
            left += (columns + 2) * CHARACTER
        top += LINE * max(map(len, cells)) + MARGIN
        parts.append(f'<path d="M{MARGIN} {top}H{width - MARGIN}" stroke="{GRAY}"/>')
    for line in (f"{len(SHOWN)} of {len(before['questions'])} questions, which no training row asks", *scores(results)):
        top += LINE
        parts.append(_text(MARGIN, top, line, PLAIN))
    top += MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}">'
    style = "<style>text{font:13px ui-monospace,Menlo,Consolas,monospace}</style>"
    return "\n".join((head, style, '<rect width="100%" height="100%" fill="#ffffff"/>', *parts, "</svg>\n"))


def _lines(text: str, width: int) -> list[str]:
    return [line.plain.rstrip() for line in Text(" ".join(text.split())).wrap(Console(), width, overflow="fold")]


def _text(left: int, top: int, text: str, color: str) -> str:
    return f'<text x="{left}" y="{top}" fill="{color}">{escape(text, quote=False)}</text>'


def main(argv: list[str]) -> None:
    Parser("python -m docs.tools.demo_picture", __doc__).parse_args(argv)
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    RESULTS.with_suffix(".svg").write_text(picture(results), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
