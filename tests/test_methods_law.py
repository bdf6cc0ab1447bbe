"""A method is asked for its fields; what it is called decides nothing outside launch/methods."""

import ast
import re

import pytest

from launch.methods.registry import METHODS
from tests.store import ROOT
from tests.test_import_law import parsed, python_files

NAMES = {method.name for method in METHODS} | {
    name for method in METHODS if method.script for name in (method.script, f"launch/{method.script}.py")
}
OBJECTS = {method.name.upper() for method in METHODS}
FORMER = {"finetunes", "prefers", "scores"}


def compared(node: ast.AST) -> list[ast.expr]:
    """Return what a node compares or looks up: sides of ==, in and is, keys of a table, cases of match."""
    match node:
        case ast.Compare(left=left, comparators=others):
            sides = [left, *others]
            return [one for side in sides for one in (side.elts if hasattr(side, "elts") else [side])]
        case ast.Dict(keys=keys):
            return [key for key in keys if key is not None]
        case ast.MatchValue(value=value):
            return [value]
    return []


def conditions(node: ast.AST) -> list[ast.expr]:
    """Return the values that a node is true or false by."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test):
            return [test]
        case ast.BoolOp(values=values):
            return values
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [operand]
        case ast.comprehension(ifs=ifs):
            return ifs
    return []


def branches(tree: ast.AST) -> list[int]:
    """Return the lines that decide by a method's name, script or object, or by what once stood for them."""
    found = []
    for node in ast.walk(tree):
        for side in compared(node):
            name = side.value if isinstance(side, ast.Constant) else None
            by_object = isinstance(side, ast.Name) and side.id in OBJECTS and isinstance(node, ast.Compare)
            if name in NAMES or by_object:
                found.append(node.lineno)
        found += [one.lineno for one in conditions(node) if isinstance(one, ast.Attribute) and one.attr in FORMER]
    return found


@pytest.mark.parametrize(
    ("line", "decides"),
    [
        ('if script == "run_dpo": pass', True),
        ('x = 1 if Path(script).stem in ("a", "run_pretrain") else 2', True),
        ('match name:\n    case "rewards": pass', True),
        ('TABLE = {"finetune_generation": 1}', True),
        ("if method is PRETRAINING: pass", True),
        ("x = [y for y in z if run.prefers and y]", True),
        ("x = not job.scores", True),
        ('train_method("run_dpo", argv)', False),
        ("if run.method.reads_rows and x in self.scores: pass", False),
    ],
)
def test_what_counts_as_a_decision(line, decides):
    assert bool(branches(ast.parse(line))) == decides


def test_no_other_file_decides_by_which_method_it_is():
    words = re.compile("|".join(NAMES | OBJECTS | FORMER))
    files = [path for path in python_files("launch", "docs", "benchmarks") if path.parent.name != "methods"]
    few = [path for path in files if words.search(path.read_text(encoding="utf-8"))]
    assert {str(path.relative_to(ROOT)): lines for path in few if (lines := branches(parsed(path)))} == {}
