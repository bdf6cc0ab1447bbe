"""Find the helpers that could stand in their callers' places: under four lines, private, with one caller."""

import ast
import gc
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKED = ("launch", "data_tools")
OTHERS = ("tests", "benchmarks", "docs", "custom_ops")  # which may call, or patch, what the checked ones have
GENERATED = ("generation_pb2.py", "generation_pb2_grpc.py")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def read(*folders: str) -> dict[str, str]:
    """Return {path: text} of the Python files below folders."""
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py")) if file.name not in GENERATED]
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


@cache
def parsed(folder: str) -> dict[str, list[ast.AST]]:
    """Return {path: all nodes} of the Python files below a folder."""
    gc.disable()  # each collection would look through all nodes again, which takes longer than parsing
    try:
        return {path: list(ast.walk(ast.parse(text))) for path, text in read(folder).items()}
    finally:
        gc.enable()


def short_helpers() -> list[str]:
    """Return "file name" of each helper.

    A public function that no other file names is a helper, too. Generators, overridden methods, and functions that are
    passed as values or replaced by tests are not.
    """
    texts = read(*CHECKED)
    others = "\n".join(read(*OTHERS).values())
    words = Counter(re.findall(r"\w+", "\n".join((*texts.values(), others))))
    nodes = {path: of_file for folder in CHECKED for path, of_file in parsed(folder).items()}
    overridden, found = _overridden([node for of_file in nodes.values() for node in of_file]), []
    for path, of_file in nodes.items():
        names = Counter(map(_name, of_file))
        called = {_name(node.func) for node in of_file if isinstance(node, ast.Call)}
        module = [node for node in of_file[:1] if isinstance(node, ast.Module)]
        public = {node.name for node in module[0].body if isinstance(node, FUNCTIONS) and not node.name.startswith("_")}
        for node in of_file:
            if not isinstance(node, FUNCTIONS) or not _is_short(node) or node.name in overridden:
                continue
            if names[node.name] != 1 or node.name not in called or f"super().{node.name}(" in texts[path]:
                continue
            if node.name in public:
                is_helper = words[node.name] == 2
            else:
                patched = (f'.{node.name}"', f'"{node.name}"', f".{node.name} = ")
                is_helper = node.name.startswith("_") and not any(text in others for text in patched)
            if is_helper:
                found.append(f"{path} {node.name}")
    return found


def _is_short(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = node.body[ast.get_docstring(node) is not None :]
    if node.decorator_list or node.name.startswith("__") or not body or isinstance(node, ast.AsyncFunctionDef):
        return False
    lines = (body[-1].end_lineno or 0) - body[0].lineno + 1
    return lines < 4 and not any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node))


def _name(node: ast.AST) -> str | None:
    return getattr(node, "id", None) or getattr(node, "attr", None)


def _overridden(nodes: list[ast.AST]) -> set[str]:
    """Return the methods that a class of the repository has from another and replaces. Class names are unique."""
    methods: defaultdict[str, set[str]] = defaultdict(set)
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    for node in classes:
        methods[node.name] |= {one.name for one in node.body if isinstance(one, FUNCTIONS)}
    pairs = [(node.name, ast.unparse(base).split("[")[0].split(".")[-1]) for node in classes for base in node.bases]
    return {name for below, above in pairs for name in methods[below] & methods[above]}
