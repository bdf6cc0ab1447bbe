"""Every command of the English pages is run by a test, printed by one, or said not to be run; and all that commands
and sentences name is there, in CONTRIBUTING.md, too: targets, variables, modules, files, flags."""

import ast
import re
import subprocess
import sys
from functools import cache

import pytest

from docs.tools.pages import ENGLISH_PAGES, ROOT, read
from launch.config.flag_values import load_schema
from launch.config.recipe_file import SCRIPTS, Recipe
from launch.config.variables import KUBERNETES, RECIPE
from tests.docs.commands import PYTHON, Command, in_blocks, in_prose
from tests.docs.pages import CODE, FENCED, INDENTED, is_there
from tests.recipes.rehearsing import recipes_by_target

PAGES = (*ENGLISH_PAGES, ROOT / "CONTRIBUTING.md")
IN_BLOCKS = [command for page in PAGES for command in in_blocks(page)]
COMMANDS = [*IN_BLOCKS, *(command for page in PAGES for command in in_prose(page))]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
RECIPES = set(recipes_by_target())
FORMS = ("", "rehearse-", "plan-", "print-", "k8s-")

# All blocks of a page in a language -> the test that runs them as they stand, in their order.
PAGES_RUN = {
    ("data", "sh"): "tests/data_tools/test_walk_through.py::test_the_page_from_top_to_bottom",
    ("evaluate", "sh"): "tests/evaluation/test_page.py::test_the_commands_print_what_the_page_shows",
    ("finetune", "sh"): "tests/training/test_finetune_page.py::test_the_page_from_top_to_bottom",
}
# Recipes of a page's blocks -> the test that prints their commands with these variables, and checks the flags.
PAGES_PRINTED = {
    "align": "tests/recipes/test_documents.py::test_make_command_can_be_printed",
    "README": "tests/recipes/test_documents.py::test_make_command_can_be_printed",
    "ai-studio": "tests/recipes/test_documents.py::test_make_command_can_be_printed",
    "families": "tests/recipes/test_documents.py::test_make_command_can_be_printed",
    "multi-node": "tests/recipes/test_documents.py::test_make_command_can_be_printed",
    "recipes": "tests/recipes/test_documents.py::test_make_command_can_be_printed",
    "resume": "tests/recipes/test_documents.py::test_make_command_can_be_printed",
    "finetune": "tests/training/test_finetune_page.py::test_commands_for_cards_name_recipes_that_take_these_variables",
}
# A program, a form of recipes -> a test that runs it.
RUN_BY = {
    "make config-from": "tests/config/test_config_from.py::test_the_page_shows_what_is_printed",
    "make custom-ops": "tests/environment/test_custom_ops.py::test_nothing_is_done_where_it_is_built",
    "make data-sft": "tests/data_tools/test_sft.py::test_the_make_target",
    "make demo": "tests/demo/test_demo.py::test_it_shows_progress_a_curve_continuations_and_the_next_commands",
    "make demo-align": "tests/demo/test_demo_align.py::test_a_short_run_prefers_what_the_rule_says",
    "make download": "tests/hubs/test_download.py::test_the_commands_of_the_page",
    "make doctor": "tests/environment/test_doctor.py::test_lines_and_json_tell_the_same_from_any_folder",
    "make export": "tests/serving/test_docs.py::test_the_chapter_of_the_readme",
    "make evaluate": "tests/evaluation/test_evaluate.py::test_the_make_target",
    "make fit": "tests/plan/test_fit.py::test_the_printed_commands_are_legal_and_fit",
    "make import": "tests/serving/test_docs.py::test_the_chapter_of_the_readme",
    "make k8s-X": "tests/test_kubernetes.py::test_the_commands_of_the_page",
    "make ledger": "tests/kills/test_samples.py::test_the_ledger_proves_it",
    "make measures": "tests/plan/test_guide.py::test_the_command_prints_a_table_and_refuses_what_it_does_not_know",
    "make merge": "tests/serving/test_docs.py::test_the_chapter_of_the_readme",
    "make plan-X": "tests/plan/test_plan_command.py::test_every_recipe_fits_the_hardware_that_it_names",
    "make predict": "tests/serving/test_docs.py::test_the_chapter_of_the_readme",
    "make rehearse-X": "tests/golden/test_golden.py::test_rehearsal_gives_the_stored_curve",
    "make serve": "tests/serving/test_docs.py::test_the_commands_of_the_pages",
    "make studio": "tests/studio/test_page.py::test_from_the_first_view_to_compared_curves",
    "make setup": "tests/environment/test_setup.py::test_makes_the_environment_once",
    "make certify": "tests/certify/test_pretend.py::test_all_checks_end_and_none_passes",
    "launch/commands/doctor.py": "tests/config/test_deepspeed.py::test_the_command",
    "launch/commands/plan_run.py": "tests/plan/test_plan_command.py::test_a_configuration_file_is_enough",
    "launch/run_dpo.py": "tests/training/test_run_dpo.py::test_the_command_of_the_page",
    "launch/run_reward.py": "tests/training/test_run_reward.py::test_the_command_of_the_page",
    "launch/run_pretrain.py": "tests/recipes/test_documents.py::test_launcher_command_is_right",
    "launch/commands/predict.py": "tests/training/test_finetune_page.py::test_the_page_from_top_to_bottom",
    "benchmarks/cpu_step.py": "tests/custom_ops/test_benchmark.py::test_pieces_and_rows_are_all_measured",
    "benchmarks/cpu_training.py": "tests/custom_ops/test_benchmark.py::test_all_rows_train_the_same",
    "benchmarks/loader.py": "tests/data_tools/test_walk_through.py::test_the_benchmark_of_the_loader",
    "benchmarks/loading.py": "tests/checkpoint/test_loading_memory.py::test_peak_beyond_the_parameters",
    "benchmarks/parity.py": "tests/test_benchmarks.py::test_runs",
    "benchmarks/plan_speed.py": "tests/test_benchmarks.py::test_runs",
    "benchmarks/rms_norm_cpu.py": "tests/custom_ops/test_benchmark.py::test_pieces_and_rows_are_all_measured",
    "benchmarks/serving.py": "tests/test_benchmarks.py::test_runs",
    "benchmarks/startup.py": "tests/test_benchmarks.py::test_runs",
    "benchmarks/tokenizing.py": "tests/data_tools/test_walk_through.py::test_rows_of_the_benchmark_have_the_same_ids",
    "benchmarks/tokenizing_memory.py": "tests/test_benchmarks.py::test_runs",
    "build/check": "tests/custom_ops/test_cuda_on_cpu.py::test_every_kernel_is_right_in_every_instance",
    "custom_ops/fused_rms_norm/harness/cuda_on_cpu.py": (
        "tests/custom_ops/test_cuda_on_cpu.py::test_every_kernel_is_right_in_every_instance"
    ),
    "python -m data_tools.preference": "tests/data_tools/test_walk_through.py::test_the_page_from_top_to_bottom",
    "python -m data_tools.tokenize": "tests/data_tools/test_walk_through.py::test_the_page_from_top_to_bottom",
    "python -m data_tools.tokenizer": "tests/data_tools/test_walk_through.py::test_the_page_from_top_to_bottom",
    "python -m data_tools.verify": "tests/data_tools/test_walk_through.py::test_the_page_from_top_to_bottom",
    "python -m docs.tools.deepspeed_page": "tests/config/test_deepspeed.py::test_the_page_is_current",
    "launch/commands/guide.py": "tests/plan/test_guide.py::test_the_tables_of_the_page_are_current",
    "python -m docs.tools.flag_docs": "tests/preflight/test_flag_docs.py::test_the_page_is_current",
    "python -m docs.tools.switch_table": "tests/docs/test_switch_table.py::test_the_table_is_what_the_plan_says_today",
    "python -m tests.golden": "tests/golden/test_golden.py::test_a_curve_is_stored",
    ".venv/bin/pip": "tests/custom_ops/test_benchmark.py::test_all_rows_train_the_same",  # needs what it installs
    "pip": "tests/custom_ops/test_install.py::test_nothing_leaks_and_uninstalling_leaves_nothing",
    "lm_eval": "tests/serving/test_harness.py::test_it_gives_what_the_harness_has_of_the_exported_model",
    "curl": "tests/serving/test_docs.py::test_the_commands_of_the_pages",
    "mpirun": "tests/recipes/test_documents.py::test_what_mpirun_starts_takes_its_place",
    "srun": "tests/recipes/test_documents.py::test_what_srun_starts_takes_its_place",
}
# What the page says is not run: its page and beginning -> the page's words.
NOT_RUN = {
    ("ai-studio", "git clone"): "Nothing here has been run",
    ("custom-ops", "nvcc"): "run on no card yet",
    ("custom-ops", "./check"): "run on no card yet",
    ("custom-ops", "python benchmarks/rms_norm_gpu.py"): "run on no card yet",
    ("deploy", "pip install vllm"): "What follows was **not run here**",
    ("deploy", "vllm"): "## vLLM (not run here)",
    ("deploy", "python -m pip install fastdeploy-gpu"): "## FastDeploy (not run here)",
    ("deploy", "python -m fastdeploy"): "## FastDeploy (not run here)",
    ("deploy", "python -m paddle.distributed.launch --gpus"): "on cards: not run",
    ("finetune", ".venv/bin/python -m paddle.distributed.launch --gpus"): "those marked `bash` need cards",
    ("setup", "docker"): "**We have not built it**",
    ("serve", "make serve MODEL=models/base ARGS=--host"): "but for the command that listens on a network",
}
THE_SHELLS = {"ssh", "%cd", "%env", "cd", "mkdir", "set"}
OF_OTHERS = ("fastdeploy", "paddle", "pip", "pytest")  # modules


def form_of(command: Command) -> str:
    """make X, make rehearse-X, ... for recipes; else the program."""
    _, target = (*command.program.split(" ", 1), "")[:2] if command.words[0] == "make" else ("", "")
    found = [form for form in FORMS if target.startswith(form) and target[len(form) :] in RECIPES | {"X"}]
    return f"make {found[-1]}X" if found else command.program


def held_by(command: Command) -> str | None:
    """The test that runs or prints it; the page's words that it is not run."""
    form, line = form_of(command), " ".join(command.words)
    if (command.page, command.language) in PAGES_RUN:
        return PAGES_RUN[command.page, command.language]
    for (page, beginning), words in NOT_RUN.items():
        if command.page == page and line.startswith(beginning):
            return words
    if form in ("make X", "make print-X"):
        return PAGES_PRINTED.get(command.page)
    return RUN_BY.get(form)


@pytest.mark.parametrize("page", ENGLISH_PAGES, ids=lambda page: page.stem)
def test_every_command_is_run_printed_or_said_not_to_be(page):
    """Those of blocks, and those of Python in sentences."""
    found = [command for command in in_blocks(page) if command.words[0] not in THE_SHELLS]
    found += [command for command in in_prose(page) if command.words[0] in PYTHON and not command.program.endswith("X")]
    assert [str(command) for command in found if not held_by(command)] == []


def test_the_lists_are_true():
    """Every test is there, every page says what it is said to say, and nothing is listed that no page has."""
    for test in {*PAGES_RUN.values(), *PAGES_PRINTED.values(), *RUN_BY.values()}:
        file, function = test.split("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test
    pages = {page.stem: " ".join(read(page).split()) for page in ENGLISH_PAGES}
    assert [key for key, words in NOT_RUN.items() if words not in pages[key[0]]] == []
    held = {held_by(command) for command in IN_BLOCKS}
    assert {*PAGES_RUN.values(), *PAGES_PRINTED.values(), *NOT_RUN.values()} <= held
    assert RUN_BY.keys() <= {form_of(command) for command in COMMANDS}


def test_targets_are_there():
    known = set(re.findall(r"^([\w-]+):(?!=)", MAKEFILE, re.M))
    known |= {f"data-{tool}" for tool in [*re.search("DATA_TOOLS := (.*)", MAKEFILE)[1].split(), "X"]}
    known |= {f"{form}{target}" for form in FORMS for target in RECIPES | {"X"}}
    asked = {command.program.removeprefix("make ") for command in COMMANDS if command.words[0] == "make"}
    assert asked - known - {"..."} == set()


def test_variables_are_known():
    known = {
        *RECIPE,
        *KUBERNETES,
        "ADAPTER",
        "NNODES",
        "RANK",
        "MASTER",
        "ELASTIC",
        *re.findall(r"\$\((\w+)\)", MAKEFILE),
    }
    for command in COMMANDS:
        assert command.variables.keys() <= known, str(command)


def test_modules_are_there():
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
    found = re.search(rf"^{target}:.*\n\t@.*?(launch/\S+\.py|-m [\w.]+)", MAKEFILE, re.M)
    return found[1].replace("-m", "python -m") if found else None


def asked_of(command: Command) -> str | None:
    """The program of ours whose flags they are."""
    form, program = form_of(command), command.program
    if form.endswith("X"):
        recipe = recipes_by_target().get(re.sub("^make (print-|rehearse-|plan-|k8s-)?", "", program))
        return Recipe.load(recipe).script if recipe else None
    if command.words[0] == "make":
        return script_of(program.removeprefix("make "))
    return program if program.removeprefix("python -m ").startswith(ROOMS) else None


def flags_of_commands() -> dict[str, set[str]]:
    """{"launch/commands/export.py": {"--dtype"}, ...}, but for commands that are not run here."""
    found: dict[str, set[str]] = {}
    for command in COMMANDS:
        program = asked_of(command) if command.flags and held_by(command) not in NOT_RUN.values() else None
        if program:
            found.setdefault(program, set()).update(command.flags)
    return found


def known_to(program: str) -> set[str]:
    if program in ("launch/run_pretrain.py", "launch/finetune_generation.py"):
        return {f"--{flag}" for flag in load_schema(program)}
    words = program.split()[1:] if program.startswith("python ") else [program]
    done = subprocess.run([sys.executable, *words, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"--[a-zA-Z][\w-]*", done.stdout))


@pytest.mark.long
@pytest.mark.parametrize("program", sorted(flags_of_commands()))
def test_a_program_knows_the_flags_of_its_commands(program):
    assert flags_of_commands()[program] - known_to(program) == set()


# Flags in sentences that are other programs': SLURM's, the launcher's, vLLM's.
NOT_OURS = {"--upgrade-package", "--signal", "--nnodes", "--rank", "--master", "--host", "--trust-remote-code"}


@cache
def known_flags() -> set[str]:
    """Of the shared modules, and what any file of ours adds to a parser."""
    flags = {f"--{flag}" for script in SCRIPTS for flag in load_schema(script)}
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    return flags | {flag for file in files for flag in re.findall(r'"(--[a-z][\w-]*)"', file.read_text("utf-8"))}


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "flags"], ids=lambda page: page.stem)
def test_flags_of_sentences_are_known(page):
    """docs/flags.md names those of PaddleNLP 2.6, too; it is made of the tables themselves."""
    spans = CODE.findall(INDENTED.sub("", FENCED.sub("", read(page))))
    named = {flag for span in spans for flag in re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", span)}
    assert named - known_flags() - NOT_OURS == set()
