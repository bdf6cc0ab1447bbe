"""All that commands and sentences of the English pages and CONTRIBUTING.md name is there: targets, variables, modules,
files, flags."""

import re
import subprocess
import sys
from functools import cache

import pytest

from docs.tools.pages import ENGLISH_PAGES, ROOT, read
from launch.config.flag_values import all_flags, known_flags
from launch.config.recipe_file import Recipe
from launch.config.variables import KUBERNETES, RECIPE
from tests.docs.commands import PYTHON, Command, in_blocks, in_prose
from tests.docs.pages import CODE, FENCED, INDENTED, is_there
from tests.recipes.rehearsing import recipes_by_target

KERNELS = ROOT / "custom_ops" / "fused_rms_norm" / "README.md"
PAGES = (*ENGLISH_PAGES, KERNELS, ROOT / "CONTRIBUTING.md")
COMMANDS = [command for page in PAGES for command in (*in_blocks(page), *in_prose(page))]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
RECIPES = set(recipes_by_target())
FORMS = ("", "rehearse-", "plan-", "print-", "k8s-")
OF_OTHERS = ("fastdeploy", "grpc_tools", "paddle", "pip", "pytest")  # modules


def form_of(command: Command) -> str:
    """make X, make rehearse-X, ... for recipes; else the program."""
    _, target = (*command.program.split(" ", 1), "")[:2] if command.words[0] == "make" else ("", "")
    found = [form for form in FORMS if target.startswith(form) and target[len(form) :] in RECIPES | {"X"}]
    return f"make {found[-1]}X" if found else command.program


def test_targets_variables_and_modules_are_there():
    known = set(re.findall(r"^([\w-]+):(?!=)", MAKEFILE, re.M))
    known |= {f"data-{tool}" for tool in [*re.search("DATA_TOOLS := (.*)", MAKEFILE)[1].split(), "X"]}
    known |= {f"{form}{target}" for form in FORMS for target in RECIPES | {"X"}}
    asked = {command.program.removeprefix("make ") for command in COMMANDS if command.words[0] == "make"}
    assert asked - known - {"..."} == set()
    known = {*RECIPE, *KUBERNETES, "ADAPTER", "NNODES", "RANK", "MASTER", *re.findall(r"(?:\$\(|:)(\w+)", MAKEFILE)}
    for command in COMMANDS:
        assert command.variables.keys() <= known, str(command)
    for command in COMMANDS:
        if command.words[0] in PYTHON and command.words[1] == "-m":
            module = command.words[2].replace(".", "/")
            known = [ROOT / f"{module}.py", ROOT / module / "__main__.py"]
            mine = not module.startswith(OF_OTHERS) and not module.endswith("/X")
            assert not mine or any(file.is_file() for file in known), str(command)


ROOMS = ("benchmarks", "custom_ops", "data_tools", "docs", "launch", "recipes", "requirements", "tests")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_are_there(page):
    """Those of this repository, in sentences and in commands; of custom_ops below its own folder, too."""
    words = [word for code in CODE.findall(INDENTED.sub("", FENCED.sub("", read(page)))) for word in code.split()]
    words += [word for command in in_blocks(page) for word in command.words]
    made = {command.words[-1] for command in in_blocks(page) if "--output" in command.words}
    for word in {word.rstrip(".,:") for word in words} - made:
        path = word.removeprefix("REPOSITORY/")
        if path.startswith(tuple(f"{room}/" for room in ROOMS)) and not re.search(r"[<*XN]", path):
            assert is_there(ROOT / path), word
        if path.startswith(("csrc/", "harness/")):
            assert list((ROOT / "custom_ops" / "fused_rms_norm").glob(path)), word


@cache
def script_of(target: str) -> str | None:
    """What a target of the Makefile runs: launch/X.py, python -m MODULE."""
    if target.startswith("data-"):
        return f"python -m data_tools.{target.removeprefix('data-')}"
    found = re.search(rf"^{target}:.*\n\t@.*?(launch/\S+\.py(?: [a-z]+)?|-m [\w.]+)", MAKEFILE, re.M)
    return found[1].replace("-m", "python -m") if found else None


def asked_of(command: Command) -> str | None:
    """The program of ours whose flags they are."""
    form, program = form_of(command), command.program
    if form.endswith("X"):
        recipe = recipes_by_target().get(re.sub("^make (print-|rehearse-|plan-|k8s-)?", "", program))
        script = Recipe.load(recipe).script if recipe else None
        return script if script is None or "/" in script else "launch/train.py"  # a method's name
    if command.words[0] == "make":
        return script_of(program.removeprefix("make "))
    ours = program.removeprefix("python -m ").startswith(ROOMS) and not program.endswith("/X.py")
    return program if ours else None


def flags_of_commands() -> dict[str, set[str]]:
    """{"launch/commands/export.py": {"--dtype"}, ...}"""
    found: dict[str, set[str]] = {}
    for command in COMMANDS:
        program = asked_of(command) if command.flags else None
        if program:
            found.setdefault(program, set()).update(command.flags)
    return found


def known_to(program: str) -> set[str]:
    if program in ("launch/run_pretrain.py", "launch/finetune_generation.py", "reinforcement"):
        return {f"--{flag}" for flag in known_flags(program)}
    if program == "launch/train.py":  # of the method that its first word names
        return {f"--{flag}" for flag in all_flags()}
    if program.startswith("benchmarks/"):  # some need torch, or a card
        text = (ROOT / program).read_text("utf-8")
        text += (ROOT / "benchmarks" / "page.py").read_text("utf-8") if "stored_parser(" in text else ""
        return set(re.findall(r'"(--[a-z][\w-]*)"', text))
    words = program.split()[1:] if program.startswith("python ") else program.split()
    done = subprocess.run([sys.executable, *words, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    of_recipes = {f"--{flag}" for flag in all_flags()} if program.endswith("fit.py") else set()  # it reads ARGS, too
    return of_recipes | set(re.findall(r"--[a-zA-Z][\w-]*", done.stdout))


@pytest.mark.long
@pytest.mark.parametrize("program", sorted(flags_of_commands()))
def test_a_program_knows_the_flags_of_its_commands(program):
    assert flags_of_commands()[program] - known_to(program) == set()


# Flags in sentences that are other programs': SLURM's, the launcher's, vLLM's.
NOT_OURS = {"--upgrade-package", "--signal", "--nnodes", "--rank", "--master", "--host", "--trust-remote-code"}
NOT_OURS |= {"--requeue", "--nodes", "--elastic_level", "--job_id", "--python_out", "--grpc_python_out"}


@cache
def flags_of_programs() -> set[str]:
    """Return the flags of all methods, and what any file of ours adds to a parser."""
    flags = {f"--{flag}" for flag in all_flags()}
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    return flags | {flag for file in files for flag in re.findall(r'"(--[a-z][\w-]*)"', file.read_text("utf-8"))}


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "flags"], ids=lambda page: page.stem)
def test_flags_of_sentences_are_known(page):
    """docs/flags.md names those of PaddleNLP 2.6, too; it is made of the tables themselves."""
    spans = CODE.findall(INDENTED.sub("", FENCED.sub("", read(page))))
    named = {flag for span in spans for flag in re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", span)}
    assert named - flags_of_programs() - NOT_OURS == set()
