"""Does the run fit into the cards, by the plan? Nothing that cannot fit starts, unless --force 1 says so."""

import psutil

from data_tools.formats.plural import plural
from launch.config.run_config import RunConfig
from launch.devices.cards import list_cards
from launch.errors import UserError
from launch.plan.hardware import GIB, Card, card_named, requested_card
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.plan_report import verdict
from launch.preflight.machine.advice import changes_that_fit, in_one_line
from launch.preflight.report import Finding

SHOWN = 3  # changes in the fix; `make plan-RECIPE` has more


def check_memory(run: RunConfig) -> list[Finding]:
    """Nothing where it is not known which cards will be used, or another check tells what is wrong with the model."""
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
    """The kind of the chosen cards: by their name, else as the user named them, else by the memory that the recipe
    needs; None where nothing is known."""
    chosen = [one for one in list_cards() if str(one.index) in run.devices or one.uuid in run.devices]
    try:
        if chosen:
            return card_named(chosen[0].name)
    except UserError:
        pass  # a kind that is not in the catalogue
    try:
        return requested_card(run.card, run.gpu_memory_gb)
    except UserError:
        return None


def _in_host_memory(parts: dict[str, int], ranks: int, forced: bool) -> Finding:
    """What offload keeps there must be there: it is page-locked, so none of it can be swapped out."""
    available, needed = psutil.virtual_memory().available, ranks * sum(parts.values())
    found = f"{needed / GIB:.0f} GiB for {plural(ranks, 'rank')} here, {available / GIB:.0f} GiB available"
    if needed <= available or forced:
        return Finding(True, "host memory", found)
    fix = "a machine with more host memory, more ranks to divide it, or another way to save memory: docs/low-memory.md"
    return Finding(False, "host memory", found, f"{fix}. --force 1 starts it all the same")


def _on_cpu(tensors: int, ranks: int) -> Finding:
    """Of all ranks of this machine together; what Python and the libraries take is not counted."""
    available = psutil.virtual_memory().available
    where = "1 rank" if ranks == 1 else f"each of {ranks} ranks"
    found = f"{tensors / GIB:.1f} GiB of tensors in {where}, {available / GIB:.1f} GiB available here"
    if tensors * ranks <= available:
        return Finding(True, "memory", found)
    return Finding(False, "memory", found, "a smaller --per_device_train_batch_size or --recompute 1; --force 1")
