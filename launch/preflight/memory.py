"""Does the run fit into the memory of its cards, by the plan, and which changes of flags make it fit where it does not?

Nothing that cannot fit starts, unless --force 1 is given. A change is proposed only if it passes the checks of flags.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from data_tools.formats.plural import plural
from launch.config.run_config import RunConfig
from launch.devices.cards import list_cards
from launch.devices.paddle_flags import PINNED_BY_NEED
from launch.errors import UserError
from launch.plan.hardware import GIB, Card, kind_of, requested_card
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.plan_report import verdict
from launch.preflight.proposals import SHOWN, changes_that_fit, in_one_line
from launch.preflight.report import Finding


def check_memory(run: RunConfig) -> list[Finding]:
    """Compare the planned memory with the cards', or this machine's.

    [] where the cards are unknown, or where another check reports a fault of the model.
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
    """Return the kind of the chosen cards, else the user's, else by the memory that the recipe needs.

    None where unknown.
    """
    try:
        return card_here(run) or requested_card(run.card, run.gpu_memory_gb)
    except UserError:
        return None


def card_here(run: RunConfig) -> Card | None:
    """Return the kind of the chosen cards; None where they are not here."""
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
    """Compare offload with the available memory, which is page-locked, so none of it can be swapped out."""
    available, needed = _can_be_pinned(ranks), ranks * sum(parts.values())
    found = f"{needed / GIB:.0f} GiB for {plural(ranks, 'rank')} here, {available / GIB:.0f} GiB available"
    if needed <= available or forced:
        return Finding(True, "host memory", found)
    fix = "a machine with more host memory, more ranks to divide it, or another way to save memory: docs/low-memory.md"
    return Finding(False, "host memory", found, f"{fix}. --force 1 starts it all the same")


def _on_cpu(tensors: int, ranks: int) -> Finding:
    """Check all ranks of this machine together. The memory of Python and libraries is not counted."""
    available = available_bytes()
    where = "1 rank" if ranks == 1 else f"each of {ranks} ranks"
    found = f"{tensors / GIB:.1f} GiB of tensors in {where}, {available / GIB:.1f} GiB available here"
    if tensors * ranks <= available:
        return Finding(True, "host memory", found)
    return Finding(False, "host memory", found, "a smaller --per_device_train_batch_size or --recompute 1; --force 1")
