"""After an out-of-memory error: what was planned for the run that this process is."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.config.recipe_file import SCRIPTS
from launch.config.run_config import RunConfig
from launch.devices.cards import list_cards
from launch.errors import UserError
from launch.plan.hardware import Card, card_named
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.memory_plan import MemoryPlan
from launch.plan.plan_report import memory_lines


@dataclass(frozen=True)
class ThisRun:
    """The run that this process is a rank of, planned. card: None for a CPU and for a kind that is not in the
    catalogue."""

    run: RunConfig
    card: Card | None
    job: Job
    plan: MemoryPlan

    @property
    def lines(self) -> list[str]:
        """The plan's table."""
        return memory_lines(self.job, self.plan)


def this_run(argv: list[str] = sys.argv, environment: Mapping[str, str] = os.environ) -> ThisRun | None:
    """None for other programs, and where the model or the layout cannot be planned: one error is enough."""
    script, *words = argv
    if Path(script).stem not in SCRIPTS:
        return None
    try:
        run, _, _ = RunConfig.of_rank(script, words, environment)
        card = None if run.on_cpu else _card_here()
        job = Job.from_run(run, card)
    except UserError:
        return None
    return ThisRun(run, card, job, plan_memory(job, card))


def _card_here() -> Card | None:
    """The kind of this machine's first card; None for one that is not in the catalogue."""
    for card in list_cards()[:1]:
        try:
            return card_named(card.name)
        except UserError:
            break
    return None
