"""Print the sizes of this repository, each beside its goal.

    python -m docs.tools.sizes

A code line has more than a docstring or a comment; a function's are counted with
its head. Short helpers are private, under four lines and have one caller.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from statistics import mean, median

from data_tools.cli import Parser
from docs.tools.short_helpers import FUNCTIONS, ROOT, read, short_helpers
from launch.guard import guarded
from launch.reporting.markdown import markdown

SPARE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)


def code_lines(text: str) -> tuple[int, list[int]]:
    """Return the number of code lines of a file, and of each of its functions."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {number for one in tokens if one.type not in SPARE for number in range(one.start[0], one.end[0] + 1)}
    nodes = list(ast.walk(ast.parse(text)))
    for node in nodes:
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    functions = [node for node in nodes if isinstance(node, FUNCTIONS)]
    ends = [(node.lineno, (node.end_lineno or 0) + 1) for node in functions]
    return len(lines), [len(lines.intersection(range(*end))) for end in ends]


def lines_of(*patterns: str) -> int:
    """Return the number of lines of all files that match."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for one in patterns for file in ROOT.glob(one))


def sizes() -> list[tuple[str, float, str]]:
    """Return (what, number, goal) of each size."""
    files = [code_lines(text) for text in read("launch").values()]
    functions = [lines for _, of_file in files for lines in of_file]
    texts = "\n".join(read("launch", "data_tools", "custom_ops", "benchmarks").values())
    classes = Counter(re.findall(r"^ *class (\w+)", texts, re.MULTILINE))
    return [
        ("code lines of launch/", sum(lines for lines, _ in files), "at most 28,000"),
        ("lines of tests/", lines_of("tests/**/*.py"), "at most 38,000"),
        ("code lines of a function: mean", round(mean(functions), 1), "at least 12"),
        ("code lines of a function: median", median(functions), "at least 8"),
        ("code lines of a function: most", max(functions), "at most 80"),
        ("functions of more than 80 code lines", sum(lines > 80 for lines in functions), "0"),
        ("short helpers", len(short_helpers()), "0"),
        ("class names used twice", sum(count > 1 for count in classes.values()), "0"),
        ("lines of docs/*.md", lines_of("docs/*.md"), "at most 4,000"),
        ("lines of README.md", lines_of("README.md"), "at most 130"),
    ]


def main(argv: list[str]) -> None:
    """Run the command."""
    Parser("python -m docs.tools.sizes", __doc__).parse_args(argv)
    print(markdown(("size", "now", "goal"), [(what, f"{number:,}", goal) for what, number, goal in sizes()]))


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
