"""Rehearsals of the shipped recipes, as a user starts them."""

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from launch.config.recipe_file import load_recipes
from tests.recipes.machine import ROOT, environment
from tests.store import kept


@dataclass(frozen=True)
class Rehearsal:
    """One that has ended. directory: with output/ and log/"""

    directory: Path
    done: subprocess.CompletedProcess

    @property
    def output(self) -> Path:
        return self.directory / "output"


def rehearsed(target: str) -> Rehearsal:
    """Return the whole rehearsal of a recipe, done when it is first asked for (tests/store.py).

    Raises AssertionError where it fails.
    """

    def make(folder: Path) -> list:
        done = rehearse_well(target, folder / "run").done
        return [str(done.args), done.returncode, done.stdout, done.stderr]

    folder, done = kept(f"rehearsals/{target}", make)
    return Rehearsal(folder / "run", subprocess.CompletedProcess(*done))


@cache
def recipes_by_target() -> dict[str, Path]:
    """{"pretrain-llama7b": .../recipes/llama-7b/pretrain.sh, ...}, as make sees them."""
    return {recipe.target: recipe.path for recipe in load_recipes(ROOT)}


def rehearse(target: str, directory: Path, *flags: str) -> Rehearsal:
    done = subprocess.run(
        ["bash", recipes_by_target()[target], *flags],
        cwd=ROOT,
        env=environment(ACTION="rehearse", OUTPUT=str(directory)),
        capture_output=True,
        text=True,
        timeout=500,
    )
    return Rehearsal(directory, done)


def rehearse_well(target: str, directory: Path) -> Rehearsal:
    rehearsal = rehearse(target, directory)
    assert rehearsal.done.returncode == 0, rehearsal.done.stdout + rehearsal.done.stderr
    return rehearsal
