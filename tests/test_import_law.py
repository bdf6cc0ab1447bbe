"""Who may import whom."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# These answer in under a second, on a machine that has neither Paddle nor paddlenlp.
WITHOUT_PADDLE = [
    "launch/models",
    "launch/plan",
    "launch/weights",
    "launch/import_weights.py",
    "launch/preflight",
    "launch/processes",
    "launch/devices",
    "launch/nodes",
    "launch/environment",
    "data_tools",
    "launch/recipe.py",
    "launch/doctor.py",
    "launch/dashboard.py",
    "launch/entry.py",
    "launch/demos/checks.py",
    "launch/cpu/settings.py",
    "launch/cpu/processor.py",
    "launch/serve.py",
    "launch/serving/run.py",
    "launch/reporting/records.py",
    "launch/reporting/terminal_plot.py",
    "launch/watch/hang.py",
    "launch/watch/loss.py",
    "launch/watch/memory.py",
]
# Entry points: what they see no GPU for, they rehearse.
MAY_IMPORT_REHEARSAL = {"launch/entry.py", "launch/recipe.py"}


def python_files(*places: str) -> list[Path]:
    found = []
    for place in places:
        path = ROOT / place
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def imports(path: Path, anywhere: bool = False) -> set[str]:
    """Names of the modules that a file imports: at its top level, or anywhere in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if anywhere else tree.body
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def reachable(path: Path) -> set[str]:
    """Modules that importing a file imports, ours followed to their ends."""
    seen, waiting, found = set(), [path], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for name in imports(current):
            found.add(name)
            for module in (name, name.rpartition(".")[0]):
                file = ROOT / (module.replace(".", "/") + ".py")
                package = ROOT / module.replace(".", "/") / "__init__.py"
                waiting += [one for one in (file, package) if one.exists()]
    return found


def test_what_must_answer_at_once_imports_no_paddle():
    for path in python_files(*WITHOUT_PADDLE):
        heavy = {name for name in reachable(path) if name.split(".")[0] in ("paddle", "paddlenlp")}
        assert not heavy, f"{path.relative_to(ROOT)} imports {heavy}"


def test_nobody_imports_rehearsal_but_entry_points():
    for path in python_files("launch", "data_tools"):
        relative = str(path.relative_to(ROOT))
        if relative.startswith("launch/rehearsal/") or relative in MAY_IMPORT_REHEARSAL:
            continue
        assert not [name for name in imports(path, anywhere=True) if name.startswith("launch.rehearsal")], relative


def test_data_tools_and_upstream_know_nothing_above_them():
    for path in python_files("data_tools"):
        assert not [name for name in imports(path, anywhere=True) if name.startswith("launch")], path
    for path in python_files("launch/upstream"):
        above = [name for name in imports(path, anywhere=True) if name.startswith("launch.") and "upstream" not in name]
        assert not above, path


def test_no_circles_between_rooms():
    """Rooms are the folders of launch and data_tools; an entry point may import any room, a room no entry point."""
    rooms: dict[str, set[str]] = {}
    for path in python_files("launch", "data_tools"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        room = ".".join(parts[:2]) if len(parts) > 2 else ".".join(parts)
        for name in imports(path, anywhere=True):
            target = ".".join(name.split(".")[:2])
            if name.split(".")[0] in ("launch", "data_tools") and target != room:
                rooms.setdefault(room, set()).add(target)
    order: list[str] = []

    def visit(room: str, trail: tuple[str, ...]) -> None:
        assert room not in trail, f"circle: {' -> '.join([*trail[trail.index(room):], room])}"
        if room not in order:
            for target in sorted(rooms.get(room, ())):
                visit(target, (*trail, room))
            order.append(room)

    for room in sorted(rooms):
        visit(room, ())
