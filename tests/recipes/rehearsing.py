"""Rehearsals of the shipped recipes, as a user starts them."""

import fcntl
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from launch.config.recipe_file import load_recipes
from tests.recipes.machine import ROOT, environment


@dataclass(frozen=True)
class Rehearsal:
    """One that has ended. directory: with output/ and log/"""

    directory: Path
    done: subprocess.CompletedProcess

    @property
    def output(self) -> Path:
        return self.directory / "output"


class Rehearsals:
    """Rehearses each recipe once, whole, and keeps what it left; raises AssertionError where it fails.

    root: a folder that may be shared with other processes, which then share the rehearsals.
    """

    def __init__(self, root: Path):
        self.root = root

    def __call__(self, target: str) -> Rehearsal:
        self.root.mkdir(exist_ok=True)
        directory, kept = self.root / target, self.root / f"{target}.json"
        with open(self.root / f"{target}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed: another process may rehearse it now
            if not kept.exists():
                done = rehearse_well(target, directory).done
                kept.write_text(json.dumps([done.args, done.returncode, done.stdout, done.stderr], default=str))
        return Rehearsal(directory, subprocess.CompletedProcess(*json.loads(kept.read_text())))


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
