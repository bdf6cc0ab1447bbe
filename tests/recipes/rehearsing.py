"""Rehearsals of the shipped recipes, as a user starts them."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from launch.config.recipe_file import load_recipes
from tests.recipes.machine import ROOT, WISHES

PYTHON = Path(sys.executable)


@dataclass(frozen=True)
class Rehearsal:
    """One that has ended. directory: with output/ and log/"""

    directory: Path
    done: subprocess.CompletedProcess

    @property
    def output(self) -> Path:
        return self.directory / "output"


class Rehearsals:
    """Rehearses each recipe once, whole, and keeps what it left; raises AssertionError where it fails."""

    def __init__(self, root: Path):
        self.root = root
        self._done: dict[str, Rehearsal] = {}

    def __call__(self, target: str) -> Rehearsal:
        if target not in self._done:
            self._done[target] = rehearse_well(target, self.root / target)
        return self._done[target]


def recipes_by_target() -> dict[str, Path]:
    """{"pretrain-llama7b": .../recipes/llama-7b/pretrain.sh, ...}, as make sees them."""
    return {recipe.target: recipe.path for recipe in load_recipes(ROOT)}


def rehearse(target: str, directory: Path, *flags: str) -> Rehearsal:
    clean = {name: value for name, value in os.environ.items() if name not in WISHES}
    done = subprocess.run(
        ["bash", recipes_by_target()[target], *flags],
        cwd=ROOT,
        env=clean | {"ACTION": "rehearse", "OUTPUT": str(directory), "PATH": f"{PYTHON.parent}:{clean['PATH']}"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    return Rehearsal(directory, done)


def rehearse_well(target: str, directory: Path) -> Rehearsal:
    rehearsal = rehearse(target, directory)
    assert rehearsal.done.returncode == 0, rehearsal.done.stdout + rehearsal.done.stderr
    return rehearsal
