"""How many seeded faults the tests find: mutants drawn at random, each tried on the tests nearest to it.

    .venv/bin/python benchmarks/mutants.py --draw --revision 47219ee4    # draws the mutants, stores them in --output
    .venv/bin/python benchmarks/mutants.py --revision 47219ee4           # tries those that have no result: hours
    .venv/bin/python benchmarks/mutants.py --vital --jobs 2              # those in what must never weaken alone
    .venv/bin/python benchmarks/mutants.py --table --revision 47219ee4   # the stored results, in Markdown
    .venv/bin/python benchmarks/mutants.py --patch v07 fault.diff        # sets one whose code has moved by hand

A mutant is one changed span of one file: a comparison, a boundary, a constant, an operator, a dropped statement,
swapped arguments, a dropped check. Files are drawn in proportion to their lines of code, vital ones among those of
VITAL. Each is tried in a git worktree of its own, whose .venv imports that tree. Its test files are those of the
module's room and those that import it, directly or through others; the closest come first, and cheap ones before those
that start processes; long tests come last. They end at the first failure, or at a limit of CPU seconds of all their
processes: then the result is `unknown`. A test that fails without the mutant, too, does not count. Ctrl-C loses only
the mutants that are being tried; the same command goes on. On another revision a mutant is found by its file, function
and statement; `moved` says that it is not there: write what its `words` say as a diff (--patch).
"""

import argparse
import ast
import contextlib
import ctypes
import functools
import importlib.util
import io
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tokenize
from collections import Counter
from pathlib import Path

import psutil

PRODUCT = ("custom_ops", "data_tools", "launch")
GENERATED = "launch/serving/rpc/generation_pb2"
VITAL = {  # subject: the files that five mutants are drawn from
    "manifests and resume": r"launch/(checkpoint/(manifest|checkpoint_writer|output_directory|parts|random_state)"
    r"|training/(resuming|checkpointer)|preflight/resume)\.py",
    "data order": r"(launch/training/(batches|data)|launch/checkpoint/data_ledger|data_tools/formats/blended"
    r"|data_tools/formats/tokens/(samples|resumable|blend))\.py",
    "loss and gradient scaling": r"launch/(training/(losses|chunked_loss|optimizer|preference_losses|kto_loss)"
    r"|upstream/(token_loss|master_gradients_stay_scaled))\.py",
    "weight conversion": r"launch/(weights/\w+|adapters/lora_files)\.py",
    "planner arithmetic": r"launch/(plan/(memory_model|states|shards|step|time_plan|work)|families/arithmetic)\.py",
    "refusals": r"launch/(preflight/(rules/)?|config/)\w+\.py",
}
VITAL_EACH = 5
SWAPS = {"==": "!=", "in": "not in", "is": "is not", "<": ">=", "<=": ">"}
SWAPS |= {after: before for before, after in SWAPS.items()}
BOUNDARIES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
OPERATORS = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "%", "%": "//", "and": "or", "or": "and", "|": "&", "&": "|"}
# Calls of which a change says nothing: they print, or their arguments may be swapped.
SAYING = re.compile("print(_exc)?|log|debug|info|_?warn(ing)?|error|add_(argument|row)|heading|_?say|_?tell|dup2|flush")
SYMMETRIC = re.compile("isinstance|issubclass|[gs]etattr|hasattr|min|max|gcd|isclose|allclose|TypeVar")
KEYWORDS = ("encoding", "ensure_ascii", "exist_ok", "flush", "help", "indent", "parents", "stacklevel", "width")
COSTLY = re.compile(r"\(ranks\b|\branks\(|\brehearsals\b|subprocess|servers")  # test files that start processes
FAR = 4  # steps of imports that a test counts which only its room connects with the module
CHUNK = 25  # test files for one pytest
WALL = 15  # the limit of real seconds for each CPU second: other work may have the cores
PYTEST = ("-m", "pytest", "-n", "0", "-x", "-q", "-rfE", "-p", "no:cacheprovider", "-o", "addopts=")


class Finder(ast.NodeVisitor):
    """The mutants of a file: `found`, each with its span in bytes (`start`, `end`)."""

    def __init__(self, file: str, source: bytes):
        self.file, self.source, self.found = file, source, []
        self.offsets = [0]
        for line in source.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))
        self.path: list[str] = []
        self.statement = ""
        self.visit(ast.parse(source))

    def start(self, node) -> int:
        """Return the offset of a node's first byte."""
        return self.offsets[node.lineno - 1] + node.col_offset

    def end(self, node) -> int:
        """Return the offset behind a node's last byte."""
        return self.offsets[node.end_lineno - 1] + node.end_col_offset

    def text(self, start: int, end: int) -> str:
        """Return the source between two offsets."""
        return self.source[start:end].decode()

    def add(self, kind: str, start: int, end: int, after: str) -> None:
        """Add a mutant that replaces the source between two offsets."""
        mutant = {"file": self.file, "function": ".".join(self.path), "statement": self.statement, "kind": kind}
        mutant |= {"before": self.text(start, end), "after": after}
        equal = sum(mutant.items() <= other.items() for other in self.found)
        place = {"occurrence": equal, "line": self.source.count(b"\n", 0, start) + 1, "start": start, "end": end}
        self.found.append(mutant | place)

    def between(self, kind: str, left, right, others: dict[str, str]) -> None:
        """Change the operator between two operands; brackets around them belong to neither."""
        start = self.end(left)
        gap = self.text(start, self.start(right))
        operator = gap.strip("() \t\n")
        if operator in others:
            start += gap.index(operator)
            self.add(kind, start, start + len(operator), others[operator])

    def visit(self, node) -> None:
        """Visit a node, unless it holds only messages."""
        named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        match node:
            case ast.JoinedStr() | ast.Raise() | ast.FunctionDef(name="__repr__" | "__str__"):
                return
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if SAYING.fullmatch(name):
                return
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Compare(left=ast.Name(id="__name__"))):
                return
            case ast.keyword(arg=name) if name in KEYWORDS:
                return
        outer = self.statement
        if isinstance(node, ast.stmt):
            end = self.start(node.body[0]) if getattr(node, "body", None) else self.end(node)
            self.statement = " ".join(self.text(self.start(node), end).split())
        self.path += [node.name] if named else []
        if hasattr(node, "lineno"):
            self.mutate(node, self.start(node), self.end(node))
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns", "decorator_list", "bases"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self.visit(child)
        self.path = self.path[:-1] if named else self.path
        self.statement = outer

    def mutate(self, node, start: int, end: int) -> None:
        """Add the mutants of one node."""
        text = self.text(start, end)
        match node:
            case ast.Compare(left=left, comparators=[right]):
                self.between("comparison", left, right, SWAPS)
                self.between("boundary", left, right, BOUNDARIES)
            case ast.BinOp(left=left, right=right) if "'" not in text and '"' not in text:  # no path, no message
                self.between("operator", left, right, OPERATORS)
            case ast.BoolOp(values=[left, right, *_]):
                self.between("operator", left, right, OPERATORS)
            case ast.UnaryOp(op=ast.Not()):
                self.add("operator", start, end, text[3:].lstrip())
            case ast.Constant(value=bool() | int() | float() as value):
                others = {bool: not value, int: value + 1, float: value * 2 or 1.0}
                self.add("constant", start, end, repr(others[type(value)]))
            case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))):
                if not SAYING.fullmatch(name):
                    self.add("dropped statement", start, end, "pass")
            case ast.AugAssign() | ast.Continue() | ast.Break() | ast.Return(value=None):
                self.add("dropped statement", start, end, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                self.add("dropped statement", start, end, "pass")
            case ast.If(test=test, body=[ast.Raise()], orelse=[]):
                self.add("dropped check", self.start(test), self.end(test), "False")
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, second, *_]):
                one, two = (self.text(self.start(arg), self.end(arg)) for arg in (first, second))
                if one != two and "*" not in (one[0], two[0]) and not SYMMETRIC.fullmatch(name):
                    comma = self.text(self.end(first), self.start(second))
                    self.add("swapped arguments", self.start(first), self.end(second), two + comma + one)


def mutated(mutant: dict, source: bytes) -> bytes:
    """Return the source with a mutant."""
    return source[: mutant["start"]] + mutant["after"].encode() + source[mutant["end"] :]


def lines_of_code(source: bytes) -> int:
    """Count the lines without comments, docstrings and blank ones."""
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    tokens = [one for one in tokenize.tokenize(io.BytesIO(source).readline) if one.type not in layout][1:-1]
    lines = {line for one in tokens for line in range(one.start[0], one.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def draw(sources: dict[str, bytes], count: int, seed: int) -> list[dict]:
    """Draw mutants at equal distances in the lines of code of all files, from a random start.

    In a file every kind that it has is as likely as another. No function is drawn twice while the file has another.
    """
    chance = random.Random(seed)
    step = sum(map(lines_of_code, sources.values())) / max(count, 1)
    point, passed, drawn = chance.uniform(0, step), 0, []
    for file, source in sorted(sources.items()):
        passed += lines_of_code(source)
        while point < passed and len(drawn) < count:
            left = [one for one in Finder(file, source).found if one not in drawn]
            taken = {one["function"] for one in drawn if one["file"] == file}
            left = [one for one in left if one["function"] not in taken] or left
            if not left:
                break  # the next file has the point
            kind = chance.choice(sorted({one["kind"] for one in left}))
            drawn.append(chance.choice([one for one in left if one["kind"] == kind]))
            ast.parse(mutated(drawn[-1], source))
            point += step
    return drawn


def draw_all(repository: Path, revision: str, seed: int, count: int) -> list[dict]:
    """Draw the random and the vital mutants, as rows without results."""
    names = _git(repository, "ls-tree", "-r", "--name-only", revision, *PRODUCT).splitlines()
    names = [one for one in names if one.endswith(".py") and not one.startswith(GENERATED)]
    sources = {one: _git(repository, "show", f"{revision}:{one}").encode() for one in names}
    rows = [{"id": f"r{n:02}", "set": "random"} | one for n, one in enumerate(draw(sources, count, seed), 1)]
    for number, (subject, pattern) in enumerate(VITAL.items()):
        files = {file: source for file, source in sources.items() if re.fullmatch(pattern, file)}
        for n, one in enumerate(draw(files, VITAL_EACH if files else 0, seed), number * VITAL_EACH + 1):
            rows.append({"id": f"v{n:02}", "set": "vital", "subject": subject} | one)
    return [{k: row[k] for k in row if k not in ("start", "end")} | {"words": "", "results": {}} for row in rows]


@functools.cache
def importers(tree: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the file of each module of a tree, and the modules that use it.

    A module uses another by import or by naming it in a string, as `tests.x.y_ranks:function`, `launch/commands/x.py`
    or `x.py`.
    """
    files = [path for top in (*PRODUCT, "tests") for path in sorted((tree / top).rglob("*.py"))]
    modules = {_module(str(path.relative_to(tree))): path for path in files}
    count = Counter(path.stem for path in files)
    alone = {path.stem: name for name, path in modules.items() if count[path.stem] == 1}
    used: dict[str, set[str]] = {}
    for importer, path in modules.items():
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = []
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{one.name}" for one in node.names]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names = re.findall(rf"\b(?:{'|'.join(PRODUCT)}|tests)(?:\.\w+)+", node.value.replace("/", "."))
                names += [alone.get(one, "") for one in re.findall(r"(\w+)\.py\b", node.value)]
            for name in names:
                while name and name not in modules:
                    name = name.rpartition(".")[0]
                used.setdefault(name, set()).add(importer)
    return {name: str(path.relative_to(tree)) for name, path in modules.items()}, used


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def tests_of(tree: Path, file: str) -> list[str]:
    """List the test files for a mutant in a file, the closest first."""
    paths, used = importers(tree)
    steps, queue = {_module(file): 0}, [_module(file)]
    for name in queue:
        for other in sorted(used.get(name, set()) - set(steps)):
            steps[other] = steps[name] + 1
            queue.append(other)
    room = f"tests/{Path(file).parent}/".replace("tests/launch/", "tests/")
    own = (f"test_{Path(file).stem}.py", f"test_{Path(file).parent.name}.py")
    found = []
    for name, path in paths.items():
        if Path(path).name.startswith("test_") and (name in steps or path.startswith(room)):
            distance = steps.get(name, FAR) + (not path.startswith(room))
            if path.startswith(room) and Path(path).name in own:
                distance = 0
            found.append((distance, bool(COSTLY.search((tree / path).read_text())), path))
    return [path for *_, path in sorted(found)]


def make_tree(repository: Path, revision: str, tree: Path) -> None:
    """Make a worktree whose .venv has this environment's packages, and imports the product from the worktree."""
    _git(repository, "worktree", "add", "-q", "--detach", str(tree), revision)
    old, new = Path(sys.prefix), tree / ".venv"
    packages = Path(sysconfig.get_paths()["purelib"]).relative_to(old)
    (new / packages).mkdir(parents=True)
    (new / "bin").mkdir()
    shutil.copy(old / "pyvenv.cfg", new)
    for entry in (old / packages).iterdir():
        if entry.name.startswith("__editable__"):
            (new / packages / entry.name).write_text(f"{tree}\n")
        else:
            (new / packages / entry.name).symlink_to(entry)
    for entry in (old / "bin").glob("python*"):
        (new / "bin" / entry.name).symlink_to(os.readlink(entry))
    if (stamp := old / "setup.json").exists():  # `make setup` compares it
        (new / "setup.json").write_text(stamp.read_text().replace(str(old.parent), str(tree)))
    for name in PRODUCT:
        if (tree / name / "__init__.py").exists():
            code = f"import {name}; print({name}.__file__)"
            found = subprocess.check_output([new / "bin" / "python", "-I", "-c", code], cwd="/", text=True).strip()
            if Path(found).parent != tree / name:
                raise RuntimeError(f"{new}/bin/python imports {found}: expected that of {tree}; run `make setup`")


class MutantTrial:
    """Runs of pytest in a tree, below one limit of CPU seconds."""

    def __init__(self, tree: Path, limit: float):
        self.tree, self.limit, self.begun = tree, limit, time.monotonic()
        self.before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])

    def used(self) -> float:
        """Return the CPU seconds of all child processes since the start."""
        seconds = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - self.before
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                seconds += sum(process.cpu_times()[:4])  # its own, and those of its children that have ended
        return round(seconds, 1)

    def pytest(self, *arguments: str) -> tuple[int | None, str]:
        """Return the exit code (None: the limit) and the first test that failed."""
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTEST_ADDOPTS", "VIRTUAL_ENV")}
        streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "start_new_session": True}
        command = [self.tree / ".venv/bin/python", *PYTEST, *arguments]
        with tempfile.TemporaryFile("w+", errors="replace") as out:
            process = subprocess.Popen(command, cwd=self.tree, env=environment, stdout=out, **streams)
            try:
                while self.used() < self.limit and time.monotonic() - self.begun < WALL * self.limit:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(1)
                        break
                code = process.returncode
            finally:  # orphans are children of this process
                while left := psutil.Process().children(recursive=True):
                    for one in left:
                        one.kill()
                    for one in psutil.Process().children():
                        one.wait(60)
            out.seek(0)
            shown = out.read()
        failed = re.search(r"short test summary info.*\n(?:FAILED|ERROR) (.+?)(?: - .*)?\n", shown)
        return code, failed[1] if failed else f"pytest itself: {shown.strip()[-300:]}"


def try_row(row: dict, settings: argparse.Namespace) -> tuple[dict, dict, list[str]]:
    """Return a row, its result, and the tests known to fail without a mutant, too."""
    tree, failing = Path(settings.folder) / f"tree-{os.getpid()}", settings.failing
    if not tree.exists():
        make_tree(settings.repository, settings.revision, tree)
    _restore(tree)
    tests = tests_of(tree, row["file"])
    if not _apply(tree, row):
        return row, {"result": "moved"}, failing
    trial = MutantTrial(tree, settings.cpu_seconds)
    long = [path for path in tests if "mark.long" in (tree / path).read_text()]
    groups = [("not long", tests[n : n + CHUNK]) for n in range(0, len(tests), CHUNK)]
    groups += [("long", long[n : n + CHUNK]) for n in range(0, len(long), CHUNK)]
    for marker, files in groups:
        killer = None
        while True:
            skipped = [f"--deselect={one}" for one in failing]
            code, found = trial.pytest("-m", f"({settings.m}) and {marker}", *skipped, *files)
            if code in (0, 5):  # 5: no test has the marker
                break
            result = {"by": found, "cpu_seconds": trial.used(), "files": len(tests)}
            if code is None:
                return row, result | {"result": "unknown", "by": ""}, failing
            _restore(tree)
            chosen = [found] if "::" in found else ["--collect-only", *files]
            if MutantTrial(tree, settings.cpu_seconds).pytest(*chosen)[0] == 0:
                return row, result | {"result": "killed"}, failing
            if "::" not in found or found == killer:
                return row, result | {"result": "unknown"}, failing  # it fails without a mutant, too
            failing.append(killer := found)
            _apply(tree, row)
    return row, {"result": "survived", "by": "", "cpu_seconds": trial.used(), "files": len(tests)}, failing


def _apply(tree: Path, row: dict) -> bool:
    path = tree / row["file"]
    source = path.read_bytes() if path.exists() else b""
    keys = ("function", "statement", "kind", "before", "after", "occurrence")
    same = [one for one in Finder(row["file"], source).found if all(one[key] == row[key] for key in keys)]
    if same:
        path.write_bytes(mutated(same[0], source))
    elif "patch" in row:
        subprocess.run(["git", "apply"], cwd=tree, input=row["patch"], text=True, check=True)
    _forget_compiled(tree)
    return bool(same) or "patch" in row


def _restore(tree: Path) -> None:
    _forget_compiled(tree)
    _git(tree, "checkout", "-q", "--", ".")


def _forget_compiled(tree: Path) -> None:
    """Drop the bytecode of changed files, which Python knows by its age in seconds and its size: both can be equal."""
    for name in _git(tree, "diff", "--name-only").split():
        Path(importlib.util.cache_from_source(tree / name)).unlink(missing_ok=True)


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout


def _start_worker() -> None:
    """Make the worker the parent of what tests leave behind, so that its time counts and it ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit())
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _save(path: Path, data: dict) -> None:
    path.with_suffix(".part").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    path.with_suffix(".part").replace(path)


def try_all(data: dict, rows: list[dict], settings: argparse.Namespace) -> None:
    """Try rows and store each result at once."""
    begun, failing = time.monotonic(), data["failing"].setdefault(settings.revision, [])
    by_id = {row["id"]: row for row in data["rows"]}
    with tempfile.TemporaryDirectory(prefix="mutants-") as settings.folder:
        settings.failing = list(failing)
        try:
            with multiprocessing.get_context("fork").Pool(settings.jobs, _start_worker) as pool:
                results = pool.imap_unordered(functools.partial(try_row, settings=settings), rows)
                for done, (row, result, found) in enumerate(results, 1):
                    by_id[row["id"]]["results"][settings.revision] = result
                    failing += [one for one in found if one not in failing]
                    _save(settings.output, data)
                    left = (time.monotonic() - begun) / done * (len(rows) - done) / 60
                    shown = f"{row['id']} {row['file']}:{row['line']} {result['result']} {result.get('by', '')}"
                    print(f"{done}/{len(rows)} {shown} ({left:.0f} min left)", flush=True)
        finally:
            for tree in Path(settings.folder).glob("tree-*"):
                _git(settings.repository, "worktree", "remove", "--force", str(tree))


def table(data: dict, revision: str) -> str:
    """Return the results as Markdown, with the counts of each set below."""
    lines = ["| | mutant | kind | before → after | result | in words; killed by | CPU s |", f"|{'---|' * 6}---:|"]
    counts: dict[str, Counter] = {}
    weaker = []
    for row in data["rows"]:
        result = {"result": "not run", "by": "", "cpu_seconds": ""} | row["results"].get(revision, {})
        counts.setdefault(row["set"], Counter())[result["result"]] += 1
        change = " → ".join(f"`{' '.join(row[key].split())[:60]}`" for key in ("before", "after"))
        words = "; ".join(filter(None, (row["words"], result["by"])))
        cells = (row["id"], f"{row['file']}:{row['line']}", row["kind"], change, result["result"], words)
        escaped = [str(one).replace("|", "\\|") for one in (*cells, result["cpu_seconds"])]
        lines.append(f"| {' | '.join(escaped)} |")
        first = row["results"].get(data["drawn"], {}).get("result")
        weaker += [row["id"]] if first == "killed" and result["result"] in ("moved", "survived", "unknown") else []
    for name, count in counts.items():
        shown = ", ".join(f"{number} {result}" for result, number in count.most_common())
        ended = count["killed"] + count["survived"]
        share, least = (f"{100 * count['killed'] / max(1, n):.0f} %" for n in (ended, ended + count["unknown"]))
        lines.append(f"\n{name}: {shown}. Killed of those that ended: {share}, of these and the unknown: {least}")
    lines.append(f"\nkilled on {data['drawn']}, not on {revision}: {', '.join(weaker) or 'none'}")
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--draw", action="store_true", help="draw the mutants from --revision, and end")
    parser.add_argument("--table", action="store_true", help="print the results of --revision, and end")
    parser.add_argument("--patch", nargs=2, metavar=("ID", "DIFF"), help="a mutant by hand, where it is not found")
    parser.add_argument("--revision", default="HEAD", help="the tree that is mutated and tested (default: HEAD)")
    parser.add_argument("--seed", type=int, default=36, help="of the drawing (default: 36)")
    parser.add_argument("--count", type=int, default=60, help="random mutants that are drawn (default: 60)")
    parser.add_argument("--vital", action="store_true", help="try the vital mutants alone")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tried at a time (default: 1)")
    parser.add_argument("--cpu-seconds", type=float, default=120, help="for a mutant's tests (default: 120)")
    parser.add_argument("-m", default="not nightly", help="tests that count, as in pytest (default: not nightly)")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/mutants.json"), metavar="FILE")
    settings = parser.parse_args(argv)
    settings.repository = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel").strip())
    settings.revision = _git(Path.cwd(), "rev-parse", "--short=8", f"{settings.revision}^{{commit}}").strip()
    if settings.draw:
        rows = draw_all(settings.repository, settings.revision, settings.seed, settings.count)
        return _save(settings.output, {"drawn": settings.revision, "seed": settings.seed, "failing": {}, "rows": rows})
    data = json.loads(settings.output.read_text())
    if settings.table:
        return print(table(data, settings.revision))
    if settings.patch:
        row = next(row for row in data["rows"] if row["id"] == settings.patch[0])
        row["patch"] = Path(settings.patch[1]).read_text()
        row["results"] = {key: one for key, one in row["results"].items() if one["result"] != "moved"}
        return _save(settings.output, data)
    rows = [row for row in data["rows"] if settings.revision not in row["results"]]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        try_all(data, [row for row in rows if row["set"] == "vital" or not settings.vital], settings)
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command goes on") from None


if __name__ == "__main__":
    main(sys.argv[1:])
