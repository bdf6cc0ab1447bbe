"""Docstrings begin with a verb, a class name stands for one thing, and a short helper in its only caller's place."""

import ast
import re

from docs.tools.short_helpers import parsed, short_helpers

FOLDERS = ("launch", "data_tools", "custom_ops", "benchmarks")
# Short helpers that stay, and why.
KEPT = {
    "launch/adapters/quantization.py _coded_blocks": "what it computes in float32 is freed before the next piece",
    "launch/adapters/quantization.py _whole": "what it computes in float32 is freed before the next piece",
}
# First words that ruff's D401 lets pass and that are no imperative.
NO_VERBS = re.compile(
    "(A|All|An|And|Another|As|At|Before|Both|By|Bytes|Each|Every|For|From|How|If|In|Its?|Keys|None|Nothing|No|Of|On"
    "|One|Our|Rows|Seconds|Texts|That|The|These|This|Those|To|Tokens|Two|Upstream|What|Where|Whether|Which|While|Why"
    r"|With|Without|[^A-Z].*)\b"
)


def _definitions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Return (file:line, definition) of all functions and classes."""
    return [
        (f"{path}:{node.lineno}", node)
        for folder in FOLDERS
        for path, nodes in parsed(folder).items()
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]


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


def test_a_short_helper_stands_in_its_only_callers_place():
    assert sorted(short_helpers()) == sorted(KEPT)
