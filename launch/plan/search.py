"""The planner's search: a run with some of its flags replaced, planned, and the best that keeps to limits.

    found = candidates(run, card, literature(run, job), job.global_batch)
    best(found, lambda candidate: candidate.seconds, SearchLimits(card.memory_bytes))

What can be replaced is in launch/plan/variations.py. FIT, the advice below a plan, make fit and the studio are calls of
it: launch/preflight/proposals.py.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, takewhile
from math import inf

from launch.config.flag_values import Flags
from launch.config.layout import ACCUMULATION, MICRO_BATCH
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.plan.hardware import Card
from launch.plan.job import Job
from launch.plan.memory_model import MemoryPlan, bytes_if_far, host_bytes, plan_memory
from launch.plan.time_plan import TimePlan, plan_time

BATCH = "batch"  # the kind of edit that `candidates` makes itself


@dataclass(frozen=True)
class Edit:
    """A replacement of flags.

    Attributes:
        title: For people.
        kind: Two edits of one kind exclude each other.
        flags: With their new values.
        result: How the trained model differs, "" where the run computes the same.
    """

    title: str
    kind: str
    flags: dict[str, str]
    result: str = ""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A run with some of its flags replaced.

    Attributes:
        run: Before the edits.
        changes: The flags that differ, with the batch that keeps the samples of a step.
        division: Candidates of one division differ in their micro batch alone.
    """

    run: RunConfig
    card: Card
    job: Job
    edits: tuple[Edit, ...] = ()
    changes: Flags = field(default_factory=dict)
    division: int = 0
    _needed: dict[float, int] = field(default_factory=dict, repr=False)

    @property
    def flags(self) -> Flags:
        """All flags of the candidate."""
        return self.run.explicit | self.changes

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the edits."""
        return tuple(edit.kind for edit in self.edits)

    @cached_property
    def time(self) -> TimePlan:
        """The planned time."""
        return plan_time(self.job, self.card).spread

    @cached_property
    def memory(self) -> MemoryPlan:
        """The planned memory."""
        return plan_memory(self.job, self.card)

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self.time.step_seconds

    @property
    def peak_bytes(self) -> int:
        """Bytes on the fullest device."""
        return self.memory.peak_bytes

    def needed(self, room: float) -> int:
        """Return the bytes on the fullest device; a rough number where they exceed the room by far."""
        if room not in self._needed:
            self._needed[room] = bytes_if_far(self.job, room) or self.peak_bytes
        return self._needed[room]

    def with_edit(self, edit: Edit) -> "Candidate":
        """Return the candidate with one edit more. The edit states the accumulation if it changes the batch."""
        changes = self.changes | {name: [value] for name, value in edit.flags.items()}
        job = Job.from_run(self.run.changed(changes), self.card)
        return Candidate(self.run, self.card, job, (*self.edits, edit), changes, self.division)


def candidates(
    run: RunConfig, card: Card, vary: Iterable[tuple[Edit, ...]], samples: int, sizes: Sequence[int] = ()
) -> Iterator[Candidate]:
    """Yield the run with each tuple of edits, with as many samples a step; none where they have no layout.

    Args:
        run: the run before the edits; its own layout need not exist
        card: of the plans
        vary: tuples of edits; one with two edits of a kind is left out
        samples: samples of a step, dealt out by accumulation; what cannot deal them out is left out
        sizes: micro batches that each tuple is tried with, in ascending order; none: as its edits state
    """
    for division, edits in enumerate(vary):
        if len({edit.kind for edit in edits}) < len(edits):
            continue
        changes = {name: [value] for edit in edits for name, value in edit.flags.items()}
        try:
            job = Job.from_run(run.changed(changes), card)
        except UserError:
            continue
        for size in sizes or (job.micro_batch,):
            steps, rest = divmod(samples, size * job.layout.data_ranks)
            if rest or not steps:
                continue
            if (size, steps) == (job.micro_batch, job.accumulation):
                yield Candidate(run, card, job, edits, changes, division)
                continue
            title = f"micro batch {size} x accumulation {steps}"
            batch = Edit(title, BATCH, {MICRO_BATCH: str(size), ACCUMULATION: str(steps)})
            stated = changes | {name: [value] for name, value in batch.flags.items()}
            sized = job.changed(micro_batch=size, accumulation=steps)
            yield Candidate(run, card, sized, (*edits, batch) if sizes else edits, stated, division)


@dataclass(frozen=True)
class SearchLimits:
    """The limits that candidates of a search keep.

    Attributes:
        device_bytes, host_bytes: Of each rank.
        allows: Further conditions, such as that the flags go together.
        below: A candidate's objective is lower.
        free: An edit without a price, made only where a candidate does not fit without it.
        count: At most as many are found, one of each kind.
        close: Candidates whose objectives differ by this share at most are equally good: of one division the
            smallest micro batch is taken, of several the division that is the best in unlimited memory.
    """

    device_bytes: float
    host_bytes: float = inf
    allows: Callable[[Candidate], bool] = lambda candidate: True
    below: float = inf
    free: Edit | None = None
    count: int = 1
    kind: Callable[[Candidate], Hashable] = lambda candidate: None
    close: float = 0.0

    def fits(self, candidate: Candidate) -> bool:
        """Return True if the candidate keeps to the limits of memory."""
        if self.host_bytes < inf and sum(host_bytes(candidate.job).values()) > self.host_bytes:
            return False
        return candidate.needed(self.device_bytes) <= self.device_bytes

    def fitted(self, candidate: Candidate) -> Candidate | None:
        """Return the candidate if it fits, else with the free edit if that does."""
        if self.fits(candidate):
            return candidate
        if self.free is None or not self.fits(changed := candidate.with_edit(self.free)):
            return None
        return changed


def best(
    candidates: Iterable[Candidate],
    objective: Callable[[Candidate], float],
    limits: SearchLimits,
    found: Sequence[Candidate] = (),
) -> list[Candidate]:
    """Return the candidates with the lowest objectives that keep to the limits, lowest first.

    Divisions are tried in the order of what they would reach in unlimited memory. In a division a larger micro batch
    is better and needs more memory, until a pipeline has too few of them.

    Args:
        candidates: one division after the other
        objective: lower is better
        limits: that the candidates keep
        found: of an earlier search; what is found now is better, or of another kind
    """
    divisions = [_falling(list(division), objective) for _, division in groupby(candidates, lambda one: one.division)]
    chosen = {limits.kind(candidate): candidate for candidate in found}
    for division in sorted(divisions, key=lambda division: objective(division[-1])):
        kind, below = limits.kind(division[0]), limits.below
        if kind in chosen:
            below = min(below, objective(chosen[kind]) * (1 - limits.close))
        elif len(chosen) >= limits.count:
            below = min(below, sorted(map(objective, chosen.values()))[limits.count - 1])
        better = [candidate for candidate in division if objective(candidate) < below]
        if better and limits.allows(better[0]) and (candidate := _largest(better, objective, limits)):
            chosen[kind] = candidate
    return sorted(chosen.values(), key=objective)[: limits.count]


def _falling(division: list[Candidate], objective: Callable[[Candidate], float]) -> list[Candidate]:
    """Return the candidates up to the one with the lowest objective."""
    pairs = zip(division, division[1:], strict=False)
    return [
        division[0],
        *(after for _, after in takewhile(lambda pair: objective(pair[1]) < objective(pair[0]), pairs)),
    ]


def _largest(
    division: list[Candidate], objective: Callable[[Candidate], float], limits: SearchLimits
) -> Candidate | None:
    """Return the candidate with the largest micro batch that fits, by bisection, or a smaller one that is as good."""
    fitting, first, behind, middle = None, 0, len(division), 0
    while first < behind:
        if candidate := limits.fitted(division[middle]):
            fitting, first = candidate, middle + 1
        else:
            behind = middle
        middle = (first + behind) // 2
    if fitting is None or not limits.close:
        return fitting
    near = next(one for one in division if objective(one) <= (1 + limits.close) * objective(fitting))
    return limits.fitted(near)
