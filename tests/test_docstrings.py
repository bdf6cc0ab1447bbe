"""Docstrings begin with a verb, and a class name stands for one thing."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("launch", "data_tools", "custom_ops", "benchmarks")
GENERATED = ("generation_pb2.py", "generation_pb2_grpc.py")
# First words that ruff's D401 lets pass and that are no imperative.
NO_VERBS = re.compile(
    "(A|All|An|And|Another|As|At|Before|Both|By|Bytes|Each|Every|For|From|How|If|In|Its?|Keys|None|Nothing|No|Of|On"
    "|One|Our|Rows|Seconds|Texts|That|The|These|This|Those|To|Tokens|Two|Upstream|What|Where|Whether|Which|While|Why"
    r"|With|Without|[^A-Z].*)\b"
)


@cache
def _definitions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Return (file:line, definition) of all functions and classes."""
    found = []
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            if file.name not in GENERATED:
                for node in ast.walk(ast.parse(file.read_text())):
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                        found.append((f"{file.relative_to(ROOT).as_posix()}:{node.lineno}", node))
    return found


def test_a_functions_docstring_begins_with_a_verb():
    found = [
        f"{place} {node.name}"
        for place, node in _definitions()
        if not isinstance(node, ast.ClassDef)
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        and NO_VERBS.match(ast.get_docstring(node) or "Return")
    ]
    assert not found, "\n".join(found)


def test_a_class_name_stands_for_one_thing():
    found: dict[str, list[str]] = {}
    for place, node in _definitions():
        if isinstance(node, ast.ClassDef):
            found.setdefault(node.name, []).append(place)
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert twice == {}
