"""What README, docs/recipes.md and docs/resume.md show: the commands of a model of one's own, killed and
continued, run as they stand; what plans and refusals print is what is shown; README is short."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.tools.pages import ROOT, chinese_of, read
from launch.config.recipe_file import load_recipes
from launch.plan.hardware import card_of_memory
from tests.docs.pages import FENCED
from tests.recipes.machine import Machine, environment
from tests.repository_folder import link_repository

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
README = ROOT / "README.md"
RECIPES, RESUME = ROOT / "docs" / "recipes.md", ROOT / "docs" / "resume.md"
SMALL = "Qwen/Qwen3-1.7B"
# A disk like that of the page's machine.
DISK = """
import shutil
from collections import namedtuple
usage = namedtuple("usage", "total used free")
shutil.disk_usage = lambda path: usage(10**12, 0, 58 * 10**9)
"""


def block_with(page: Path, words: str) -> str:
    [block] = [body for _, body in FENCED.findall(read(page)) if words in body]
    return block


def run(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess:
    """In a shell; make without its set-up, as .venv is the tests' own."""
    shell = f'make() {{ command make --no-print-directory -o setup "$@"; }}\n{command}'
    return subprocess.run(
        ["bash", "-euc", shell],
        cwd=folder,
        env=environment(PATH=os.environ["PATH"], **variables),
        capture_output=True,
        text=True,
        timeout=600,
    )


def pieces(shown: str) -> list[str]:
    """What is shown between the lines of dots, in which the rest is left out. Where lines end is the terminal's."""
    return [" ".join(piece.split()) for piece in re.split(r"^\s*\.\.\.\n", shown, flags=re.M) if piece.strip()]


def assert_shown(shown: str, said: str) -> None:
    """Every piece is there, in this order."""
    rest = " ".join(said.split())
    for piece in pieces(shown):
        before, found, rest = rest.partition(piece)
        assert found, f"{piece}\n--- is not in ---\n{before}"


def test_the_plan_that_does_not_fit_is_what_is_printed(tmp_path):
    command, shown = block_with(RECIPES, "DOES NOT FIT").split("\n", 1)
    done = run(command.removeprefix("$ "), link_repository(tmp_path))
    assert done.returncode == 2, f"make's code of a plan that does not fit: {done.stderr}"
    assert_shown(shown, done.stdout)


@pytest.mark.parametrize("page", [RECIPES, chinese_of(RECIPES)], ids=lambda page: page.parent.name)
def test_a_sentence_above_the_recipes_names_the_cards_of_their_plans(page):
    above = read(page).partition("<!-- recipes -->")[0].rpartition("\n## ")[2]
    sizes = {recipe.gpu_memory_gb for recipe in load_recipes(ROOT) if recipe.gpus}
    assert [card_of_memory(size).name for size in sizes if card_of_memory(size).name not in above] == []


@pytest.mark.parametrize("readme", [README, chinese_of(README)], ids=lambda page: page.stem)
def test_readme_is_short_and_names_what_ran_on_cards_before_the_install(readme):
    text = read(readme)
    assert len(text.splitlines()) <= 130 and text.count("![") <= 2
    assert 0 < text.find("H200") < text.find("git clone") and "`make test`" in text


@pytest.mark.parametrize("page", ["docs/ai-studio.md", "docs/zh/ai-studio.md"])
def test_the_first_walk_on_ai_studio_trains_a_small_qwen3(page):
    found = re.findall(r"make ((?:rehearse|plan)?-?lora-\S+|download) ?(?:MODEL=(\S+))?", read(ROOT / page))
    assert found[:3] == [("rehearse-lora-qwen3-8b", ""), ("plan-lora-qwen3-8b", SMALL), ("download", SMALL)]


def test_make_in_another_folder_says_how(tmp_path):
    done = subprocess.run(["make", "-f", ROOT / "Makefile", "help"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and f"make -C {ROOT}/ help" in done.stderr


def test_the_refusal_is_what_is_printed(tmp_path):
    shown = block_with(RECIPES, "cannot start here: ").partition("\n")[2]
    machine = Machine(tmp_path)
    shutil.rmtree(machine.folder / "data")
    (machine.stubs / "sitecustomize.py").write_text(DISK)
    done = machine.run("llama-7b/pretrain")
    masked = [re.sub(r"\S*bin/python", "PYTHON", " ".join(text.split())) for text in (shown, done.stdout + done.stderr)]
    assert masked[0] == masked[1]


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_model_of_ones_own_is_trained_killed_and_continued(tmp_path):
    """Steps 15 and 20, which the kill undid, are made again to the bit."""
    folder = link_repository(tmp_path)
    assert run(".venv/bin/python -m data_tools.stdlib_corpus --output texts --max_mb 1", folder).returncode == 0
    own = run(block_with(README, "--vocab_size 2000"), folder)
    assert own.returncode == 0, own.stdout[-3000:] + own.stderr[-3000:]
    assert "step 40/40" in own.stdout
    shown = block_with(RESUME, "LAUNCH_FAULT")
    setting, killed, again = re.findall(r"^\$ (.*)$", shown, re.M)
    first, second = (run(f"{setting}\n{command}", folder) for command in (killed, again))
    assert first.returncode != 0 and second.returncode == 0, first.stdout + first.stderr + second.stdout + second.stderr
    assert "rank 0 failed with exit code 137; its log is killed/log/workerlog.0" in first.stderr
    assert "\nthe same command goes on from killed/checkpoint-10\n" in first.stderr
    assert re.search(r"resume +killed/checkpoint-10, after step 10 and 80 samples", second.stdout)
    undone = [re.findall(r"^step (?:15|20)/30.*\|g\| \S+", done.stdout, re.M) for done in (first, second)]
    assert len(undone[0]) == 2 and undone[1] == undone[0]
