"""The commands of recipes and launchers on the pages that no other test walks through, on pretended machines."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from launch import preflight
from launch.config.flag_values import parse_flags
from launch.config.recipe_file import Recipe, load_recipes
from launch.nodes.place import read_nodes
from launch.preflight.flag_check import check_flags
from launch.preflight.requested import requested_run
from tests.devices.fake_nvml import FakeNvml, card
from tests.docs.commands import Command, in_blocks
from tests.recipes.machine import ROOT, Machine

DOCUMENTS = ("README", "ai-studio", "families", "multi-node", "recipes", "rehearsal", "resume")
RECIPES = {recipe.target: recipe.name for recipe in load_recipes(ROOT)}
NIGHTLY = pytest.mark.nightly
DISK = SimpleNamespace(total=10**13, used=0, free=10**13)


def page(name: str) -> Path:
    return ROOT / "README.md" if name == "README" else ROOT / "docs" / f"{name}.md"


def read(name: str) -> str:
    return page(name).read_text(encoding="utf-8")


def code(name: str) -> list[str]:
    """The lines of all blocks of code."""
    return [line for block in re.findall(r"^```.*?\n(.*?)^```", read(name), re.M | re.S) for line in block.splitlines()]


def recipe_of(command: Command) -> str | None:
    """Whose form it is: X, print-X, rehearse-X, plan-X."""
    return RECIPES.get(re.sub("^make (print-|rehearse-|plan-)?", "", command.program))


def commands() -> list[Command]:
    return [command for name in DOCUMENTS for command in in_blocks(page(name))]


def make_commands() -> list[Command]:
    return list({command.words: command for command in commands() if recipe_of(command)}.values())


def launcher_commands() -> list[Command]:
    return [command for command in commands() if command.program == "launch/run_pretrain.py"]


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.mark.parametrize("command", make_commands(), ids=str)
def test_make_command_can_be_printed(command, machine, tmp_path):
    variables = command.variables
    variables |= {"MASTER": "127.0.0.1:8090"} if "MASTER" in variables else {}  # nobody has 10.0.0.1 here
    if "CONFIG" in variables:  # the user's file
        file = tmp_path / variables["CONFIG"]
        file.parent.mkdir(exist_ok=True)
        file.write_text("stage: SFT" if file.suffix == ".yaml" else '{"max_length": 512}')
        variables["CONFIG"] = str(file)
    done = machine.run(recipe_of(command), ACTION="print", **variables)
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout.split("\n\n")[0].replace("\\\n", " "))
    script = next(number for number, word in enumerate(words) if word.endswith(".py"))
    assert faults(words[script], words[script + 1 :]) == []


def faults(script: str, words: list[str]) -> list:
    return [finding for finding in check_flags(script, parse_flags(words)) if not finding.ok]


@pytest.mark.parametrize("command", launcher_commands(), ids=str)
def test_launcher_command_is_right(command):
    given = {"FLAGS", "pretrain_argument.json"}  # the user's
    words = [word.removeprefix("REPOSITORY/") for word in command.words if word not in given]
    script = words.index("launch/run_pretrain.py")
    assert faults(words[script], words[script + 1 :]) == []
    assert words[1:script] == [] or words[1:3] == ["-m", "paddle.distributed.launch"]
    options = parse_flags(words[3:script])
    assert set(options) <= {"nnodes", "rank", "master", "host", "gpus", "nproc_per_node"}


def sbatch() -> str:
    blocks = re.findall(r"^```bash\n(.*?)^```", read("multi-node"), re.M | re.S)
    (script,) = [block for block in blocks if "#SBATCH" in block]
    return script


def test_the_batch_script_is_valid_shell_and_what_mpirun_starts_takes_its_place():
    assert subprocess.run(["bash", "-n"], input=sbatch(), capture_output=True, text=True).stderr == ""
    (line,) = [line for line in code("multi-node") if line.startswith("mpirun ")]
    words = shlex.split(line)
    master = words[words.index("-x") + 1].removeprefix("MASTER=")
    told = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    assert read_nodes(told | {"MASTER": master}).rank == 1
    assert words[words.index("bash") + 1].removeprefix("recipes/").removesuffix(".sh") in RECIPES.values()


@pytest.mark.parametrize("rank", ["0", "1"])
def test_what_srun_starts_takes_its_place(rank, machine):
    command = shlex.split(sbatch().splitlines()[-1])
    slurm = {"SLURM_NNODES": "2", "SLURM_NODEID": rank, "SLURM_JOB_NODELIST": "localhost,gpu02", "SLURM_JOB_ID": "4711"}
    recipe, *flags = command[command.index("bash") + 1 :]
    done = machine.run(recipe.removeprefix("recipes/").removesuffix(".sh"), *flags, ACTION="print", **slurm)
    assert f"# node {rank} ({'gpu02' if rank == '1' else 'localhost'}), this one\n" in done.stdout
    assert " --nnodes 2 --rank 1 --master 127.0.0.1:24711 " in done.stdout


# Recipes of docs/ai-studio.md that one card of any of these kinds runs as they are.
ADAPTERS = (
    *("lora-qwen3-8b", "qlora-qwen3-8b", "lora-1gpu", "prefix-llama7b", "qlora-llama7b"),
    *("qlora-baichuan13b", "lora-chatglm6b-int8"),
)


def on_one_card() -> list[tuple[str, dict[str, str]]]:
    """(target, variables): those recipes, and the commands that choose another training for one card."""
    commands = [command for command in in_blocks(page("ai-studio")) if command.variables.get("GPUS") == "1"]
    assert len(commands) == 4
    return [(one, {}) for one in ADAPTERS] + [
        (command.program.removeprefix("make "), command.variables) for command in commands[1:]
    ]


@pytest.mark.parametrize(("target", "variables"), on_one_card(), ids=str)
@pytest.mark.parametrize("kind", ["V100", *(pytest.param(one, marks=NIGHTLY) for one in ("3090", "4090", "A100-40G"))])
def test_a_recipe_fits_itself_to_one_card(target, variables, kind, machine, monkeypatch):
    """All of preflight's lines are good, on each kind of card; `driver` is about the Paddle that is installed here."""
    monkeypatch.chdir(machine.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DISK)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([card(kind)]))
    recipe = Recipe.load(ROOT / "recipes" / f"{RECIPES[target]}.sh")
    findings = preflight.run(requested_run(recipe, variables)[0])
    assert [finding for finding in findings if not finding.ok and finding.subject != "driver"] == []
