"""After an out-of-memory error: what was planned for the run that this process is."""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.config.aliases import todays_flags
from launch.config.flag_values import Flags, parse_flags
from launch.devices.cards import list_cards
from launch.errors import UserError
from launch.plan.hardware import Card, card_named
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.memory_plan import MemoryPlan
from launch.plan.plan_report import memory_lines
from launch.processes.command import COMMAND

SHARED_MODULES = ("run_pretrain", "finetune_generation")


@dataclass(frozen=True)
class ThisRun:
    """A command line of a shared module, planned.

    card: None for a CPU and for a kind that is not in the catalogue. own: the flags of ARGS, where a recipe runs it.
    """

    script: str
    flags: Flags
    processes: int
    card: Card | None
    job: Job
    plan: MemoryPlan
    own: Flags

    @property
    def lines(self) -> list[str]:
        """The plan's table."""
        return memory_lines(self.job, self.plan)


def this_run(argv: list[str] = sys.argv, environment: Mapping[str, str] = os.environ) -> ThisRun | None:
    """None for other programs, and where the model or the layout cannot be planned: one error is enough."""
    script, *words = argv
    if Path(script).stem not in SHARED_MODULES:
        return None
    processes = int(environment.get("PADDLE_TRAINERS_NUM", "1"))
    try:
        flags, _ = todays_flags(parse_flags(words))
        card = None if str(flags.get("device", ["gpu"])[0]).startswith("cpu") else _card_here()
        job = Job.from_flags(script, flags, processes, card)
        own = parse_flags(shlex.split(environment.get("ARGS", ""))) if COMMAND in environment else {}
    except UserError:
        return None
    return ThisRun(script, flags, processes, card, job, plan_memory(job, card), todays_flags(own)[0])


def _card_here() -> Card | None:
    """The kind of this machine's first card; None for one that is not in the catalogue."""
    for card in list_cards()[:1]:
        try:
            return card_named(card.name)
        except UserError:
            break
    return None
