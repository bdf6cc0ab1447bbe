"""Who may import whom."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.store import ROOT

# Rooms, and files beside them that are no commands. Each imports those of lower floors alone, so there are no circles;
# none imports a command.
FLOORS = {
    "launch": (
        ("errors",),
        ("models",),
        ("upstream",),
        ("methods",),
        ("config",),
        ("guard", "cpu"),
        ("tape",),
        ("families",),
        ("checkpoint", "devices", "generation", "reporting"),
        ("adapters", "nodes", "offload", "switches"),
        ("processes", "weights"),
        ("hubs", "plan"),
        ("preflight",),
        ("environment", "kubernetes", "watch"),
        ("training",),
        ("prediction", "rehearsal"),
        ("serving", "entry", "evaluation"),
        ("certify", "studio"),
        ("commands",),
    ),
    "data_tools": (
        ("children",),
        ("formats", "language", "terminal"),
        ("cli", "dialogues", "progress", "text"),
        ("preferences",),
    ),
}
# These answer in under a second, on a machine that has neither Paddle nor paddlenlp. All commands are among them:
# each answers --help, and says what is wrong with a flag, before it imports Paddle.
WITHOUT_PADDLE = (
    "data_tools",
    "custom_ops/fused_rms_norm/nvcc.py",
    "custom_ops/fused_rms_norm/sources.py",
    "launch/certify",
    "launch/config",
    "launch/commands",
    "launch/cpu/settings.py",
    "launch/devices",
    "launch/environment",
    "launch/families",
    "launch/hubs",
    "launch/methods",
    "launch/nodes",
    "launch/plan",
    "launch/preflight",
    "launch/processes",
    "launch/reporting/markdown.py",
    "launch/reporting/records.py",
    "launch/reporting/announce.py",
    "launch/serving/event_loop.py",
    "launch/studio",
    *(f"launch/switches/{name}.py" for name in ("__init__", "precision", "switch")),
    "launch/tape",
    "launch/weights",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "launch").glob("*.py"))),
)
# Where no GPU is seen, they rehearse.
MAY_IMPORT_REHEARSAL = {
    "launch/entry.py",
    "launch/recipe.py",
    "launch/commands/certify.py",
    "launch/certify/bench.py",
}


def python_files(*places: str) -> list[Path]:
    found = []
    for place in places:
        path = ROOT / place
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path, anywhere: bool = True) -> set[str]:
    """Names of the modules that a file imports: anywhere in it, or at its top level."""
    tree, names = parsed(path), set()
    for node in ast.walk(tree) if anywhere else tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported(path: Path, *packages: str) -> list[str]:
    """What a file imports, anywhere in it, of these packages."""
    return sorted(name for name in imports(path) if name.startswith(tuple(f"{package}." for package in packages)))


@cache
def files_of(name: str) -> list[Path]:
    """The files of ours that an imported name stands for: a module, or one that holds the name."""
    places = [ROOT / module.replace(".", "/") for module in (name, name.rpartition(".")[0])]
    return [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]


def reachable(path: Path) -> set[str]:
    """Modules that importing a file imports, ours followed to their ends."""
    seen, waiting, found = set(), [path], set()
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            found |= imports(current, anywhere=False)
            waiting += [file for name in imports(current, anywhere=False) for file in files_of(name)]
    return found


def room(path: Path) -> str:
    """The folder of its package that a file is in; its own name where it lies in the package itself."""
    return path.relative_to(ROOT).with_suffix("").parts[1]


def test_what_must_answer_at_once_imports_no_paddle():
    for path in python_files(*WITHOUT_PADDLE):
        heavy = {name for name in reachable(path) if name.split(".")[0] in ("paddle", "paddlenlp")}
        assert not heavy, f"{path.relative_to(ROOT)} imports {heavy}"


def test_nobody_imports_rehearsal_but_entry_points():
    for path in python_files("launch"):
        relative = str(path.relative_to(ROOT))
        if room(path) != "rehearsal" and relative not in MAY_IMPORT_REHEARSAL:
            assert not imported(path, "launch.rehearsal"), relative


@pytest.mark.parametrize("package", FLOORS)
def test_rooms_import_those_of_lower_floors_alone(package):
    floors = {name: floor for floor, names in enumerate(FLOORS[package]) for name in names}
    rooms = {path.name for path in (ROOT / package).iterdir() if any(path.glob("*.py"))}
    assert rooms <= floors.keys(), f"{rooms - floors.keys()}: on which floor of FLOORS?"
    for path in python_files(package):
        here = room(path)
        for there in {name.split(".")[1] for name in imported(path, package)} - {here}:
            allowed = here not in floors or floors.get(there, len(floors)) < floors[here]
            assert allowed, f"{path.relative_to(ROOT)} imports {package}.{there}, a command or on no lower floor"


def test_packages_know_nothing_above_them():
    for package, above in [
        ("launch", ("tests", "benchmarks", "docs")),
        ("data_tools", ("launch", "custom_ops", "tests", "benchmarks", "docs")),
        ("custom_ops", ("launch", "data_tools", "tests", "benchmarks", "docs")),
    ]:
        for path in python_files(package):
            assert not imported(path, *above), path.relative_to(ROOT)


def test_a_file_name_says_which_file_of_launch_is_meant():
    of_each_room = ("__init__.py", "registry.py")
    names = Counter(path.name for path in python_files("launch") if path.name not in of_each_room)
    assert not [name for name, files in names.items() if files > 1]
