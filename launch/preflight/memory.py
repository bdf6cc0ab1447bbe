"""Does the run fit into the memory of its cards, by the plan, and which changes of flags make it fit where it does not?

Nothing that cannot fit starts, unless --force 1 is given. A change is proposed only if it passes the checks of flags.
"""

import os
import re
import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from data_tools.formats.plural import plural
from launch import preflight
from launch.config.flag_values import Flags, flag_words, parse_flags
from launch.config.layout import ACCUMULATION
from launch.config.run_config import ONE_NODE, Nodes, RunConfig
from launch.config.typed import within_quotes
from launch.devices.cards import list_cards
from launch.devices.switches import PINNED_BY_NEED
from launch.errors import UserError
from launch.plan.changes import (
    NOT_STATED,
    Candidate,
    Change,
    advice_lines,
    changed_arguments,
    cheapest_changes,
    faster_lines,
    faster_ways,
    fastest_layouts,
)
from launch.plan.fitting import BATCH
from launch.plan.hardware import GIB, Card, kind_of, requested_card
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.plan_report import ThisRun, verdict
from launch.preflight.report import Finding

SHOWN = 3  # changes in the fix of a finding
LISTED = 8  # changes below a plan
CHEAPEST, SPARED = 3, 0.1  # changes after an out-of-memory error, and what each must save at least


def changes_that_fit(run: RunConfig, card: Card, count: int) -> list[Change]:
    """Changes after which the run fits, the fastest first; [] where none is enough.

    Their arguments hold the user's own, and those that FIT has changed: it leaves alone what is given."""
    try:
        changes = cheapest_changes(run, card, preflight.is_legal, count)
    except UserError:
        return []
    if run.stated:
        ranks = run.stated.data_ranks
        changes = [restated for change in changes if (restated := _restated(change, run, ranks))]
    return [_beside(run.own | _fitted(run), change) for change in changes]


def _fitted(run: RunConfig) -> Flags:
    """What FIT has changed, with the accumulation that leads to the run's own once the recipe has kept the samples."""
    fitted = run.fitted or {}
    if run.stated is None or ACCUMULATION not in fitted:
        return fitted
    steps = run.global_batch // (run.flags.per_device_train_batch_size * run.stated.data_ranks)
    return fitted | {ACCUMULATION: [str(steps)]}


def _beside(given: Flags, change: Change) -> Change:
    words = flag_words(given | parse_flags(shlex.split(change.arguments)))
    return replace(change, arguments=shlex.join(words))


def arguments_of(run: RunConfig, way: Candidate) -> str | None:
    """ARGS that make a recipe's run go this way, the user's own among them; None where no whole accumulation leads
    there. All that FIT would choose is stated, for it leaves alone what is given."""
    words = NOT_STATED | way.flags
    stated = {name for name in words if words[name] != run.words.get(name, NOT_STATED.get(name))}
    flags = {name: words[name] for name in words if name in stated or name in (*BATCH, "recompute", "offload_optim")}
    if run.stated:
        steps, rest = divmod(way.job.global_batch, way.job.micro_batch * run.stated.data_ranks)
        if rest:
            return None
        flags[ACCUMULATION] = [str(steps)]
    return shlex.join(flag_words(run.own | _fitted(run) | flags))


def layouts_on(
    run: RunConfig, card: Card, cards: int, nodes: Nodes = ONE_NODE
) -> tuple[RunConfig, list[tuple[Candidate, str]]]:
    """Return the run of a recipe's own cards on so many cards a node, and its fastest layouts that fit, each with the
    ARGS that make it so, with as many samples a step."""
    batch, processes = run.global_batch, nodes.count * cards
    if processes != run.processes:
        run = replace(run, processes=processes, devices=tuple(map(str, range(cards))), stated=run.layout)
    run = replace(run, nodes=nodes)
    ways = fastest_layouts(run, card, preflight.is_legal, batch)
    return run, [(way, arguments) for way in ways if (arguments := arguments_of(run, way)) is not None]


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
    """Advice where the run does not fit on such cards, and where it does what is faster; nothing where no card is
    named."""
    if card is None:
        return []
    if plan_memory(Job.from_run(run, card), card).fits:
        return faster_lines(run, faster_ways(run, card, preflight.is_legal)) if run.flags.do_train else []
    return advice_lines(changes_that_fit(run, card, LISTED))


def lines_after_out_of_memory(planned: ThisRun) -> list[str]:
    """The cheapest changes that bring the plan's peak, or what the card has, down by SPARED: the plan was too low."""
    if planned.card is None:
        return []
    least = int((1 - SPARED) * min(planned.plan.peak_bytes, planned.card.memory_bytes))
    return advice_lines(changes_that_fit(planned.run, replace(planned.card, memory_bytes=least), CHEAPEST))


def in_one_line(changes: list[Change]) -> str:
    """The changes as the fix of a finding: flags, memory, time."""
    lines = [
        f'({number}) ARGS="{within_quotes(change.arguments)}": {change.title}, {change.peak_bytes / GIB:.1f} GiB, '
        f"time a token x {change.slowdown:.2f}{f', {change.result}' if change.result else ''}"
        for number, change in enumerate(changes, start=1)
    ]
    return "; ".join(lines) or "more or larger cards, or a smaller model"


def check_memory(run: RunConfig) -> list[Finding]:
    """The planned memory against that of the cards, or of this machine.

    No finding where the cards are unknown, or where another check reports a fault of the model.
    """
    values = run.flags
    if not values.do_train:
        return []
    on_cpu = run.on_cpu
    card = None if on_cpu else card_of(run)
    if not on_cpu and card is None:
        return []
    try:
        plan = plan_memory(Job.from_run(run, card), card)
    except UserError:
        return []
    ranks = run.processes // run.nodes.count
    if on_cpu:
        return [_on_cpu(plan.peak_bytes, ranks)]
    host = [_in_host_memory(plan.host, ranks, bool(values.force))] if "offload" in plan.host else []
    if plan.fits or values.force or card is None:
        return [Finding(True, "memory", verdict(plan)), *host]
    changes = in_one_line(changes_that_fit(run, card, SHOWN))
    return [Finding(False, "memory", verdict(plan), f"{changes}. --force 1 starts it all the same"), *host]


def card_of(run: RunConfig) -> Card | None:
    """The kind of the chosen cards, else as the user named them, else by the memory that the recipe needs; None where
    nothing is known."""
    try:
        return card_here(run) or requested_card(run.card, run.gpu_memory_gb)
    except UserError:
        return None


def card_here(run: RunConfig) -> Card | None:
    """The kind of the chosen cards; None where they are not here."""
    chosen = [card for card in list_cards() if str(card.index) in run.devices or card.uuid in run.devices]
    return kind_of(chosen[0]) if chosen else None


def available_bytes() -> int:
    """Return the memory that processes of this machine, or of this container, can still take."""
    import psutil  # here: a plan needs no packages

    return min([psutil.virtual_memory().available, *_left_in_container()])


# A container's limit, its use, and what of that is cached files: of cgroups 2 and 1.
# https://docs.kernel.org/admin-guide/cgroup-v2.html#memory
CGROUP = Path("/sys/fs/cgroup")
LIMITS = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)


def _left_in_container() -> list[int]:
    for files in LIMITS:
        with suppress(OSError, ValueError):  # no such file; "max": no limit
            limit, used, stat = ((CGROUP / file).read_text() for file in files)
            cached = sum(int(number) for number in re.findall(r"^inactive_file (\d+)", stat, re.MULTILINE))
            return [int(limit) - int(used) + cached]
    return []


def _can_be_pinned(ranks: int) -> int:
    """Return what all ranks can page-lock: each half of the host's memory where the environment undoes CARD_FLAGS."""
    import psutil

    capped = os.environ.get(PINNED_BY_NEED, "1").lower() in ("0", "false", "off")
    return min(available_bytes(), ranks * psutil.virtual_memory().total // 2) if capped else available_bytes()


def _in_host_memory(parts: dict[str, int], ranks: int, forced: bool) -> Finding:
    """Offload needs so much available memory: it is page-locked, so none of it can be swapped out."""
    available, needed = _can_be_pinned(ranks), ranks * sum(parts.values())
    found = f"{needed / GIB:.0f} GiB for {plural(ranks, 'rank')} here, {available / GIB:.0f} GiB available"
    if needed <= available or forced:
        return Finding(True, "host memory", found)
    fix = "a machine with more host memory, more ranks to divide it, or another way to save memory: docs/low-memory.md"
    return Finding(False, "host memory", found, f"{fix}. --force 1 starts it all the same")


def _on_cpu(tensors: int, ranks: int) -> Finding:
    """All ranks of this machine together. The memory of Python and libraries is not counted."""
    available = available_bytes()
    where = "1 rank" if ranks == 1 else f"each of {ranks} ranks"
    found = f"{tensors / GIB:.1f} GiB of tensors in {where}, {available / GIB:.1f} GiB available here"
    if tensors * ranks <= available:
        return Finding(True, "memory", found)
    return Finding(False, "memory", found, "a smaller --per_device_train_batch_size or --recompute 1; --force 1")
