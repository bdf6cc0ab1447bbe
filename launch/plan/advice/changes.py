"""Which changes make a run fit, each planned again: fewest first, then by how much slower they make it."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations

from launch.errors import UserError
from launch.models.flag_values import Flags
from launch.plan.advice.edits import Asked, Edit, edits, with_edits
from launch.plan.hardware import Card
from launch.plan.job import Job
from launch.plan.memory import plan_memory
from launch.plan.time import plan_time

# Pairs are extended by a third change only where hardly any pair fits, and only those that come closest.
ENOUGH, CLOSEST = 3, 8


@dataclass(frozen=True)
class Change:
    """One or several edits that belong together, planned.

    order:    place of the edits in the literature's list
    flags:    all flags of the changed run; arguments: those that differ, as ARGS takes them
    slowdown: time a token, compared with the run that was asked for as if it fitted
    """

    edits: tuple[Edit, ...]
    order: tuple[int, ...]
    flags: Flags
    arguments: str
    peak_bytes: int
    fits: bool
    slowdown: float

    @property
    def title(self) -> str:
        return " + ".join(edit.title for edit in self.edits)

    @property
    def result(self) -> str:
        """What else is trained then; "" where the run computes the same."""
        return "; ".join(edit.result for edit in self.edits if edit.result)


def cheapest_changes(
    script: str, flags: Flags, processes: int, card: Card, legal: Callable[[Flags], bool], count: int = 8
) -> list[Change]:
    """Changes that make the run fit on such cards, by slowdown, ties in the literature's order.

    legal: whether flags go together (launch.preflight). None of the changes contains another that suffices. Empty where
    nothing of the list, up to three at a time, is enough. Raises UserError where there is no such model or layout.
    """
    planner = _Planner(Asked(script, flags, processes, Job.from_flags(script, flags, processes, card)), card, legal)
    single = planner.plan_all((one,) for one in planner.numbers)
    found = [change for change in single if change.fits]
    enough = {change.order for change in found}
    pairs = planner.plan_all(pair for pair in combinations(planner.numbers, 2) if not _contains(pair, enough))
    found += [change for change in pairs if change.fits]
    if len(found) < ENOUGH:
        enough = {change.order for change in found}
        closest = sorted((change for change in pairs if not change.fits), key=lambda change: change.peak_bytes)
        triples = {
            tuple(sorted({*change.order, number})) for change in closest[:CLOSEST] for number in planner.numbers
        }
        triples = {triple for triple in triples if len(triple) == 3 and not _contains(triple, enough)}
        found += [change for change in planner.plan_all(sorted(triples)) if change.fits]
    return _fastest_of_each_kind(found)[:count]


def _fastest_of_each_kind(changes: list[Change]) -> list[Change]:
    """Sorted by slowdown; of micro batches 1 and 2, both of which fit, or of stages 2 and 3, the faster one."""
    kept = {}
    for change in sorted(changes, key=lambda change: (round(change.slowdown, 2), change.order)):
        kept.setdefault(tuple(edit.kind for edit in change.edits), change)
    return list(kept.values())


def _contains(numbers: tuple[int, ...], enough: set[tuple[int, ...]]) -> bool:
    """Whether some of these edits suffice without the others."""
    return any(set(order) <= set(numbers) for order in enough)


class _Planner:
    """Plans combinations of edits by their numbers."""

    def __init__(self, asked: Asked, card: Card, legal: Callable[[Flags], bool]):
        self.asked, self.card, self.legal = asked, card, legal
        self.edits = edits(asked)
        self.numbers = range(len(self.edits))
        self.seconds_a_token = _seconds_a_token(asked.job, card)

    def plan_all(self, combinations: Iterable[tuple[int, ...]]) -> list[Change]:
        """Those that are legal."""
        return [change for numbers in combinations if (change := self._plan(numbers))]

    def _plan(self, numbers: tuple[int, ...]) -> Change | None:
        chosen = tuple(self.edits[number] for number in numbers)
        flags = with_edits(self.asked, chosen)
        if flags is None or not self.legal(flags):
            return None
        try:
            job = Job.from_flags(self.asked.script, flags, self.asked.processes, self.card)
        except UserError:
            return None
        plan = plan_memory(job, self.card)
        return Change(
            edits=chosen,
            order=numbers,
            flags=flags,
            arguments=changed_arguments(self.asked.flags, flags),
            peak_bytes=plan.peak_bytes,
            fits=bool(plan.fits),
            slowdown=_seconds_a_token(job, self.card) / self.seconds_a_token,
        )


def changed_arguments(before: Flags, after: Flags) -> str:
    """Flags that differ, as words of a shell: --recompute 1 --sharding stage2"""
    return " ".join(
        shlex.join([f"--{name}", *words]) for name, words in after.items() if before.get(name) != words
    )


def _seconds_a_token(job: Job, card: Card) -> float:
    return 1 / plan_time(job, card).tokens_per_second
