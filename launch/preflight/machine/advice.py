"""What would make a run fit, where it does not: changes that pass the checks of the flags."""

import shlex
from dataclasses import replace

from launch import preflight
from launch.config.flag_values import Flags, flag_words, parse_flags
from launch.config.layout import ACCUMULATION
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.plan.advice import Change, advice_lines, changed_arguments, cheapest_changes
from launch.plan.hardware import GIB, Card
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.out_of_memory import ThisRun

LISTED = 8  # changes below a plan
CHEAPEST, SPARED = 3, 0.1  # changes after an out-of-memory error, and what each must save at least


def changes_that_fit(run: RunConfig, card: Card, count: int) -> list[Change]:
    """By slowdown, their arguments beside the user's own; empty where no change of the list is enough."""

    def legal(flags: dict) -> bool:
        return all(finding.ok for finding in preflight.run_on_flags(run.with_words(flags)))

    try:
        changes = cheapest_changes(run.script, run.words, run.processes, card, legal, count)
    except UserError:
        return []
    if run.stated:
        ranks = run.stated.data_ranks
        changes = [restated for change in changes if (restated := _restated(change, run, ranks))]
    return [_beside(run.own, change) for change in changes]


def _beside(own: Flags, change: Change) -> Change:
    words = flag_words(own | parse_flags(shlex.split(change.arguments)))
    return replace(change, arguments=shlex.join(words))


def _restated(change: Change, run: RunConfig, ranks: int) -> Change | None:
    """With the accumulation that leads to the change's own once the recipe has kept the samples of a step; None where
    no whole number does. ranks: data ranks of the recipe's own layout."""
    steps, rest = divmod(change.job.global_batch, change.job.micro_batch * ranks)
    if rest:
        return None
    before = change.job.global_batch // (run.flags.per_device_train_batch_size * ranks)
    flags = run.words | {ACCUMULATION: [str(before)]}
    return replace(change, arguments=changed_arguments(flags, change.flags | {ACCUMULATION: [str(steps)]}))


def lines_below_a_plan(run: RunConfig, card: Card | None) -> list[str]:
    """Advice where the run does not fit on such cards; nothing where it does, or where no card is named."""
    job = Job.from_run(run, card)
    if card is None or plan_memory(job, card).fits:
        return []
    return advice_lines(changes_that_fit(run, card, LISTED))


def lines_after_out_of_memory(planned: ThisRun) -> list[str]:
    """The cheapest changes that bring the plan's peak, or what the card has, down by SPARED: the plan was too low."""
    if planned.card is None:
        return []
    least = int((1 - SPARED) * min(planned.plan.peak_bytes, planned.card.memory_bytes))
    return advice_lines(changes_that_fit(planned.run, replace(planned.card, memory_bytes=least), CHEAPEST))


def in_one_line(changes: list[Change]) -> str:
    """The changes as the fix of a finding: flags, memory, time."""
    told = [
        f'({number}) ARGS="{one.arguments}": {one.title}, {one.peak_bytes / GIB:.1f} GiB, time a token '
        f"x {one.slowdown:.2f}{f', {one.result}' if one.result else ''}"
        for number, one in enumerate(changes, start=1)
    ]
    return "; ".join(told) or "more or larger cards, or a smaller model"
