"""Questions and answers about Python's own library, from its sources: data for fine-tuning that every machine has.

    {"src": "What does textwrap.dedent do?", "tgt": "Remove any common leading whitespace from every line in `text`."}
    {"src": "How is textwrap.dedent called?", "tgt": "def dedent(text)"}

The modules that the demo's corpus holds out are those of dev.json: nothing asked there has been seen, not even in
pretraining.
"""

import ast
import json
import sysconfig
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from data_tools.formats.atomic import written_aside
from data_tools.stdlib_corpus import modules

TRAIN_ROWS, DEV_ROWS = 4000, 128
LONGEST_ANSWER = 100  # characters


def write_questions(directory: Path, train: int, dev: int) -> None:
    """Write train.json and dev.json with so many rows at most."""
    for name, heldout, count in (("train.json", False, train), ("dev.json", True, dev)):
        with written_aside(directory / name) as file:
            for row in islice(_rows(heldout), count):
                file.write((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8"))


def _rows(heldout: bool) -> Iterator[dict]:
    for module, source in modules(sysconfig.get_path("stdlib"), heldout):
        yield from questions(module.removesuffix(".__init__"), source)


def questions(module: str, source: str) -> Iterator[dict]:
    """Rows about each function and method of a module that has a docstring."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old escapes within strings
        tree = ast.parse(source)
    for name, function in _functions(tree, module):
        text = (ast.get_docstring(function) or "").strip().partition("\n")[0].strip()
        call = f"def {function.name}({ast.unparse(function.args)})"
        if text and len(text) <= LONGEST_ANSWER and len(call) <= LONGEST_ANSWER:
            yield {"src": f"What does {name} do?", "tgt": text}
            yield {"src": f"How is {name} called?", "tgt": call}


def _functions(tree: ast.AST, place: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{place}.{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{place}.{node.name}")
