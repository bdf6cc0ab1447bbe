"""Which changes make a run fit, each planned again, by how much slower they make it."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import combinations

from launch.config.flag_values import Flags
from launch.errors import UserError
from launch.plan.advice.edits import Edit, Requested, edits, with_edits
from launch.plan.hardware import GIB, Card
from launch.plan.job import Job
from launch.plan.memory_model import least_bytes, plan_memory
from launch.plan.time_plan import plan_time

# Pairs are extended by a third change only where hardly any pair fits, and only those that come closest.
ENOUGH, CLOSEST = 3, 8


@dataclass(frozen=True)
class Change:
    """One or several edits that belong together, planned.

    order:    place of the edits in the literature's list
    flags:    all flags of the changed run; arguments: those that differ, as ARGS takes them
    slowdown: time a token, compared with the requested run as if it fitted
    peak_bytes: of the fullest card
    """

    edits: tuple[Edit, ...]
    order: tuple[int, ...]
    flags: Flags
    job: Job
    arguments: str
    slowdown: float
    peak_bytes: int = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(edit.kind for edit in self.edits)

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

    legal: whether flags go together (launch.preflight). Of changes of the same kinds (micro batches 1 and 2, stages 2
    and 3) the fastest is given, and none contains another that suffices; a smaller model is combined with others only
    where nothing else helps. Empty where nothing of the list, up to three at a time, is enough. Raises UserError where
    there is no such model or layout.
    """
    requested = Requested(script, flags, processes, Job.from_flags(script, flags, processes, card))
    planner = _Planner(requested, card, legal, count)
    planner.plan((number,) for number in planner.numbers)
    same_model = [number for number in planner.numbers if planner.edits[number].kind != "model"]
    planner.plan(combinations(same_model, 2))
    if len(planner.found) < ENOUGH:
        closest = sorted(planner.missed, key=lambda change: change.peak_bytes)[:CLOSEST]
        triples = {tuple(sorted({*change.order, number})) for change in closest for number in same_model}
        planner.plan(triple for triple in sorted(triples) if len(triple) == 3)
    if not planner.found:
        planner.plan(combinations(planner.numbers, 2))
    return sorted(planner.found, key=_slowdown_then_order)[:count]


def _slowdown_then_order(change: Change) -> tuple:
    return round(change.slowdown, 2), change.order


class _Planner:
    """Plans combinations of edits by their numbers.

    found: the fastest of their kinds that fit. enough: the numbers of all that fit. missed: what does not fit.
    """

    def __init__(self, requested: Requested, card: Card, legal: Callable[[Flags], bool], count: int):
        self.requested, self.card, self.legal, self.count = requested, card, legal, count
        self.edits = edits(requested)
        self.numbers = range(len(self.edits))
        self.seconds_a_token = _seconds_a_token(requested.job, card)
        self.enough: list[set[int]] = []
        self.found: list[Change] = []
        self.missed: list[Change] = []

    def plan(self, combinations: Iterable[tuple[int, ...]]) -> None:
        """The fastest first. A pair is left out where one of it is enough, or a faster pair of its kinds is; a third
        edit where it joins kinds that are enough without it."""
        changes = [change for numbers in combinations if (change := self._change(numbers))]
        for change in sorted(changes, key=_slowdown_then_order):
            if sum(_slowdown_then_order(other) < _slowdown_then_order(change) for other in self.found) >= self.count:
                return  # nor would what follows be among the first
            if any(enough <= set(change.order) for enough in self.enough):
                continue
            of_its_kinds = any(other.kinds == change.kinds for other in self.found)
            beyond = any(set(other.kinds) < set(change.kinds) for other in self.found)
            if (of_its_kinds and len(change.order) == 2) or (beyond and len(change.order) == 3):
                continue
            needed = self._needed(change.job)
            fits = needed <= self.card.memory_bytes
            if fits:
                self.enough.append(set(change.order))
            if not of_its_kinds:
                (self.found if fits else self.missed).append(replace(change, peak_bytes=needed))

    def _needed(self, job: Job) -> int:
        """Bytes at the peak; of what is too large between two steps already, those."""
        least = least_bytes(job)
        return least if least > self.card.memory_bytes else plan_memory(job, self.card).peak_bytes

    def _change(self, numbers: tuple[int, ...]) -> Change | None:
        """Without its memory; None where the edits exclude each other or are not legal."""
        chosen = tuple(self.edits[number] for number in numbers)
        flags = with_edits(self.requested, chosen)
        if flags is None or not self.legal(flags):
            return None
        try:
            job = Job.from_flags(self.requested.script, flags, self.requested.processes, self.card)
        except UserError:
            return None
        return Change(
            edits=chosen,
            order=numbers,
            flags=flags,
            job=job,
            arguments=changed_arguments(self.requested.flags, flags),
            slowdown=_seconds_a_token(job, self.card) / self.seconds_a_token,
        )


def changed_arguments(before: Flags, after: Flags) -> str:
    """Flags that differ, as words of a shell: --recompute 1 --sharding stage2"""
    return " ".join(shlex.join([f"--{name}", *words]) for name, words in after.items() if before.get(name) != words)


def _seconds_a_token(job: Job, card: Card) -> float:
    return 1 / plan_time(job, card).tokens_per_second


def advice_lines(changes: list[Change]) -> list[str]:
    """Two or three lines a change: memory and time, what it is; its flags; what else is trained then."""
    if not changes:
        return ["no change of the list makes it fit, up to three at a time: more or larger cards, or a smaller model"]
    lines = ["what makes it fit, fastest first (memory of a card, time a token):"]
    for number, change in enumerate(changes, start=1):
        lines.append(f"{number:3d}. {change.peak_bytes / GIB:5.1f} GiB  x {change.slowdown:4.2f}  {change.title}")
        if change.result:
            lines.append(f"       {change.result}")
        lines.append(f'       ARGS="{change.arguments}"')
    return lines
