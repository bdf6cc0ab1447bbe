"""Write every generated file of the repository, each by its own generator, and the list of them in CONTRIBUTING.md.

    python -m docs.tools.regenerate            what `make regenerate` runs
    python -m docs.tools.regenerate --check    fail if a file was out of date

The generated part of a page stands between two marks, or is the whole page.
"""

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

from data_tools.cli import Parser
from docs.tools.pages import ROOT, rewrite, with_tables
from launch.errors import UserError
from launch.guard import guarded
from launch.reporting.markdown import markdown

# Files and the arguments of Python that write them, in an order in which what one generator reads is there before it.
GENERATED = {
    "launch/config/flags.py": "-m launch.training.flag_schema",
    "launch/serving/rpc/generation_pb2*.py": "-m grpc_tools.protoc -I . --python_out=. --grpc_python_out=. "
    "launch/serving/rpc/generation.proto",
    "data_tools/locale/zh.po": "-m docs.tools.messages",
    "docs/flags.md": "-m docs.tools.flag_docs",
    "docs/from-deepspeed.md": "-m docs.tools.deepspeed_page",
    "docs/certify.md": "-m docs.tools.certify_table docs/certify.md",
    "docs/families.md": "-m docs.tools.family_table docs/families.md",
    "docs/low-memory.md": "-m docs.tools.guide_tables docs/low-memory.md",
    "docs/gpu-speed.md": "-m docs.tools.switch_table docs/gpu-speed.md",
    "docs/notebooks/*.ipynb": "-m docs.tools.notebooks",
    "docs/images/demo-chat.svg": "-m docs.tools.demo_picture",
    "docs/plan.md benchmarks/results/plan_runs.md": "benchmarks/plan_runs.py --markdown",
    "README.md docs/recipes.md": "-m docs.tools.recipe_table README.md docs/recipes.md",
}
CHINESE = {"README.zh.md docs/zh/*.md": "-m docs.tools.chinese"}  # last: of all the English pages
# What is not written here, and how to write it: it measures, asks a package index, or wants a reason.
BY_HAND = {
    "requirements/*.lock": "make lock",
    "benchmarks/results/*.json": "python benchmarks/X.py --output FILE",
    "benchmarks/results/parity.md": "python benchmarks/parity.py --markdown",
    "benchmarks/results/resuming.md": "python benchmarks/resuming.py --markdown",
    "docs/images/demo-chat.json": "make demo-chat",
    "tests/golden/*.json": 'python -m tests.golden TARGET --reason "..."',
}


def stored_results() -> list[tuple[str, str]]:
    """Return (page, arguments of Python) for each page that a benchmark writes without measuring anything."""
    pages = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
    names = [str(page.relative_to(ROOT)) for page in pages]
    here = [name for name in names if name not in BY_HAND and name not in " ".join(GENERATED)]
    return [(name, f"benchmarks/{Path(name).stem}.py --markdown") for name in here]


def table() -> str:
    """Return the table of CONTRIBUTING.md."""
    benchmarks = {"benchmarks/results/*.md": "benchmarks/X.py --markdown"}
    mine = {name: f"python {arguments}" for name, arguments in (GENERATED | benchmarks | CHINESE).items()}
    rows = [(*row, "yes") for row in mine.items()] + [(*row, "no") for row in BY_HAND.items()]
    return markdown(
        ["files", "command", "`make regenerate`"],
        (
            [" ".join(f"`{file}`" for file in files.split()), f"`{command}`", by_make]
            for files, command, by_make in rows
        ),
    )


TABLES = {"generated": table}


def write(files: str, arguments: str) -> list[str]:
    """Run one generator and return the files that it changed. Raises UserError where it fails."""
    paths = [path for pattern in files.split() for path in sorted(ROOT.glob(pattern))]
    before = [path.read_bytes() for path in paths]
    command = [sys.executable, *shlex.split(arguments)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise UserError(f"python {arguments}: exit code {done.returncode}\n{done.stdout}")
    return [str(path.relative_to(ROOT)) for path, old in zip(paths, before, strict=True) if path.read_bytes() != old]


def main(argv: list[str]) -> int:
    parser = Parser("python -m docs.tools.regenerate", __doc__)
    parser.add_argument("--check", action="store_true", help="fail if a file was out of date")
    check = parser.parse_args(argv).check
    page = ROOT / "CONTRIBUTING.md"
    before = page.read_bytes()
    rewrite(page, lambda text: with_tables(text, TABLES, page.name))
    changed = [page.name] if page.read_bytes() != before else []
    for files, arguments in [*GENERATED.items(), *stored_results(), *CHINESE.items()]:
        module = arguments.split()[1].partition(".")[0]
        if arguments.startswith("-m ") and not importlib.util.find_spec(module):
            print(f"left as it is: {files}, which needs {module} (requirements/compare.txt)", flush=True)
            continue
        found = write(files, arguments)
        print(f"{'written' if found else 'unchanged'}: {', '.join(found) or files} (python {arguments})", flush=True)
        changed += [name for name in found if name not in changed]
    if check and changed:
        raise UserError(f"out of date: {', '.join(changed)}. Run make regenerate and commit what it writes.")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
