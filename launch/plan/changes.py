"""What to change where a run does not fit, by how much slower it becomes, and the fastest layouts that fit.

for change in cheapest_changes(run, card, legal):
    print(change.title, change.peak_bytes, change.slowdown, change.arguments)
"""

import shlex
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product

from launch.config.flag_values import Flags
from launch.config.layout import ACCUMULATION, MICRO_BATCH
from launch.config.run_config import RunConfig
from launch.config.typed import within_quotes
from launch.errors import UserError
from launch.plan.edits import Edit, Requested, edits, factors, with_edits
from launch.plan.hardware import GIB, Card
from launch.plan.job import Job
from launch.plan.memory_model import TIGHT, MemoryPlan, is_far_too_large, least_bytes, plan_memory
from launch.plan.plan_report import speed_of
from launch.plan.time_plan import TimePlan, plan_time

# Pairs are extended by a third change only where hardly any pair fits, and only those that come closest.
ENOUGH, CLOSEST = 3, 8

Legal = Callable[[RunConfig], bool]


@dataclass(frozen=True)
class Change:
    """One or several edits that belong together, planned.

    order:    place of the edits in the literature's list
    flags:    all flags of the changed run; arguments: those that differ, as ARGS takes them
    slowdown: time a token, compared with the requested run as if it fitted
    peak_bytes: of the fullest card; tight: whether hardly anything of it stays free
    """

    edits: tuple[Edit, ...]
    order: tuple[int, ...]
    flags: Flags
    job: Job
    arguments: str
    slowdown: float
    peak_bytes: int = 0
    tight: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(edit.kind for edit in self.edits)

    @property
    def title(self) -> str:
        return " + ".join(edit.title for edit in self.edits) + (" (tight)" if self.tight else "")

    @property
    def result(self) -> str:
        """What else is trained then; "" where the run computes the same."""
        return "; ".join(edit.result for edit in self.edits if edit.result)


def cheapest_changes(run: RunConfig, card: Card, legal: Legal, count: int = 8) -> list[Change]:
    """Changes that make the run fit on such cards, by slowdown, ties in the literature's order; tight ones last.

    legal: whether the flags of a run go together (launch.preflight). The fastest change of each set of kinds is given:
    one of micro batches 1 and 2, one of stages 2 and 3. None contains another that suffices; a smaller model is
    combined with others only where nothing else helps. Empty where nothing of the list, up to three at a time, is
    enough. Raises UserError where there is no such model or layout.
    """
    requested = Requested(run, Job.from_run(run, card))
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
    return sorted(planner.found, key=lambda change: (change.tight, *_slowdown_then_order(change)))[:count]


def _slowdown_then_order(change: Change) -> tuple:
    return round(change.slowdown, 2), change.order


class _Planner:
    """Plans combinations of edits by their numbers.

    found: the fastest of their kinds that fit. enough: the numbers of all that fit. missed: what does not fit.
    """

    def __init__(self, requested: Requested, card: Card, legal: Legal, count: int):
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
                tight = needed > (1 - TIGHT) * self.card.memory_bytes
                (self.found if fits else self.missed).append(replace(change, peak_bytes=needed, tight=tight))

    def _needed(self, job: Job) -> int:
        """Bytes at the peak; of what is too large between two steps already, those."""
        least = least_bytes(job)
        return least if least > self.card.memory_bytes else plan_memory(job, self.card).peak_bytes

    def _change(self, numbers: tuple[int, ...]) -> Change | None:
        """Without its memory; None where the edits exclude each other or are not legal."""
        chosen = tuple(self.edits[number] for number in numbers)
        flags = with_edits(self.requested, chosen)
        if flags is None or not self.legal(changed := self.requested.run.with_words(flags)):
            return None
        try:
            job = Job.from_run(changed, self.card)
        except UserError:
            return None
        return Change(
            edits=chosen,
            order=numbers,
            flags=flags,
            job=job,
            arguments=changed_arguments(self.requested.run.words, flags),
            slowdown=_seconds_a_token(job, self.card) / self.seconds_a_token,
        )


def changed_arguments(before: Flags, after: Flags) -> str:
    """Flags that differ, as words of a shell: --recompute 1 --sharding stage2"""
    return " ".join(shlex.join([f"--{name}", *words]) for name, words in after.items() if before.get(name) != words)


def _seconds_a_token(job: Job, card: Card) -> float:
    return 1 / plan_time(job, card).spread.tokens_per_second


def advice_lines(changes: list[Change]) -> list[str]:
    """Two or three lines a change: memory and time, what it is; its flags; what else is trained then."""
    if not changes:
        return ["no change of the list makes it fit, up to three at a time: more or larger cards, or a smaller model"]
    lines = ["what makes it fit, fastest first (memory of a card, time a token):"]
    for number, change in enumerate(changes, start=1):
        lines.append(f"{number:3d}. {change.peak_bytes / GIB:5.1f} GiB  x {change.slowdown:4.2f}  {change.title}")
        if change.result:
            lines.append(f"       {change.result}")
        lines.append(f'       ARGS="{within_quotes(change.arguments)}"')
    return lines


WAYS = 3  # that are offered
RECOMPUTE = ("", "core_attn", "full_attn", "full")
STAGES = ("", "stage1", "stage2", "stage2 offload", "stage3", "stage3 offload")
# The flags that divide a run: those of the recipe are left aside.
DIVIDING = {
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "sequence_parallel",
    "sharding",
    "sharding_parallel_degree",
    "recompute",
    "recompute_granularity",
    "offload_optim",
    "offload",
}


@dataclass(frozen=True)
class Candidate:
    """One way to divide a run."""

    flags: Flags
    time: TimePlan
    memory: MemoryPlan

    @property
    def job(self) -> Job:
        return self.time.job

    @property
    def peak_bytes(self) -> int:
        """Bytes on the fullest card."""
        return self.memory.peak_bytes


def fastest_layouts(run: RunConfig, card: Card, legal: Legal, global_batch: int) -> list[Candidate]:
    """The fastest WAYS that fit, one for each layout, fastest first.

    All legal combinations of tensor, pipeline and sequence parallel, sharding, offload, micro batch and recompute, with
    as many samples a step. Time is computed for all, memory in the order of time until enough fit.
    """
    return _fastest_of_each(_timed(run, card, legal, global_batch), lambda job: job.layout, WAYS, card)


def _fastest_of_each(
    ways: Iterable[tuple[TimePlan, Flags]], kind: Callable[[Job], Hashable], count: int, card: Card
) -> list[Candidate]:
    """Return the fastest way that fits of each kind, fastest first, of so many kinds; tight ones only where no other
    fits."""
    found: dict[Hashable, Candidate] = {}
    ways = sorted(ways, key=_seconds)
    for room in (replace(card, memory_bytes=int((1 - TIGHT) * card.memory_bytes)), card):
        missed = _Missed(room)
        for time, changed in ways if not found else ():
            if kind(time.job) in found or missed.rules_out(time.job):
                continue
            too_large = is_far_too_large(time.job, room.memory_bytes)
            if not too_large and (candidate := _candidate(time, changed)).peak_bytes <= room.memory_bytes:
                found[kind(time.job)] = candidate
            else:
                missed.add(time.job)
            if len(found) == count:
                break
    return list(found.values())


WORTH = 0.05  # what is not faster by more is not told


def faster_ways(run: RunConfig, card: Card, legal: Legal) -> list[tuple[float, Candidate]]:
    """(how many times as fast, the way): the fastest that fits in the run's own layout, and in others, if it is worth a
    change. Nothing of what is learned changes: a step has the same samples. Of recompute all or nothing is tried."""
    before = Job.from_run(run, card)
    seconds = plan_time(before, card).spread.step_seconds
    ways = _timed(run, card, legal, before.global_batch, ("", "full"), (False,))
    worth = (way for way in ways if way[0].step_seconds * (1 + WORTH) < seconds)
    found = _fastest_of_each(worth, lambda job: job.layout == before.layout, 2, card)
    return [(seconds / way.time.step_seconds, way) for way in found]


# What a division means that it does not state.
NOT_STATED = {
    "tensor_parallel_degree": ["1"],
    "pipeline_parallel_degree": ["1"],
    "sequence_parallel": ["0"],
    "sharding": [""],
    "recompute": ["0"],
    "offload_optim": ["0"],
}


def faster_lines(run: RunConfig, ways: list[tuple[float, Candidate]]) -> list[str]:
    """Two lines a way: speed, memory, what it is; its flags."""
    lines = ["what is faster, with the same samples a step (speed, memory of a card):"] if ways else []
    for times, way in ways:
        dropped = {name: words for name, words in NOT_STATED.items() if name in run.words and name not in way.flags}
        batch = f"micro batch {way.job.micro_batch} x accumulation {way.job.accumulation}"
        recompute = f"recompute {way.job.recompute}" if way.job.recompute else "no recompute"
        lines.append(f"  x {times:4.2f}  {way.peak_bytes / GIB:5.1f} GiB  {way.job.layout}; {batch}, {recompute}")
        lines.append(f'       ARGS="{within_quotes(changed_arguments(run.words, dropped | way.flags))}"')
    return lines


class _Missed:
    """What did not fit, so that what needs more is not planned at all."""

    def __init__(self, card: Card):
        self.card = card
        self.smallest: dict[tuple, list[tuple[int, int]]] = {}  # division -> (micro batch, place in RECOMPUTE)

    def add(self, job: Job) -> None:
        self.smallest.setdefault(_division(job), []).append(_size(job))

    def rules_out(self, job: Job) -> bool:
        """Whether a job divided in the same way did not fit, with no larger a micro batch and no less recompute.

        The first time that a division comes up, what needs least in it is tried.
        """
        if _division(job) not in self.smallest:
            least = job.changed(
                micro_batch=1,
                accumulation=job.accumulation * job.micro_batch,
                recompute="" if "recompute" in job.family.lacking else "full",
            )
            too_large = is_far_too_large(least, self.card.memory_bytes)
            fits = not too_large and plan_memory(least, self.card).fits
            self.smallest[_division(job)] = [] if fits else [_size(least)]
        micro_batch, recompute = _size(job)
        return any(micro_batch >= batch and recompute <= place for batch, place in self.smallest[_division(job)])


def _division(job: Job) -> tuple:
    return job.layout, job.sequence_parallel, job.offload


def _size(job: Job) -> tuple[int, int]:
    return job.micro_batch, RECOMPUTE.index(job.recompute)


def describe(candidate: Candidate) -> str:
    """2 processes: sharding stage2 2; micro batch 4 x accumulation 2: 20.1 GiB, 2,345 tokens/s (± 27%)"""
    job = candidate.job
    batch = f"micro batch {job.micro_batch} x accumulation {job.accumulation}"
    others = [
        f"recompute {job.recompute}" if job.recompute else "",
        "sequence parallel" if job.sequence_parallel else "",
        "optimizer in host memory between steps" if job.offload.returns else "",
        "offload" if job.offload.gradients else "",
    ]
    how = ", ".join([batch, *filter(None, others)])
    card = candidate.time.card
    tight = " (tight)" if candidate.memory.tight else ""
    memory = f"{candidate.peak_bytes / GIB:.1f} of {card.memory_bytes / GIB:.1f} GiB{tight}"
    error = f" (± {candidate.time.error:.0%})" if candidate.time.calibrated else ""
    crossing = f" (between nodes: {job.crossing})" if job.crossing else ""
    return f"{job.layout}{crossing}; {how}: {memory}, {speed_of(candidate.time)} tokens/s{error}"


def smallest_layout(run: RunConfig, card: Card, legal: Legal, global_batch: int) -> Candidate | None:
    """What needs the least memory, for a message where nothing fits; None where nothing is legal."""
    ways = _timed(run, card, legal, global_batch)
    least = [way for way in ways if way[0].job.micro_batch == 1 and way[0].job.recompute in ("full", "")]
    return min((_candidate(*way) for way in least), key=lambda candidate: candidate.peak_bytes, default=None)


def _candidate(time: TimePlan, flags: Flags) -> Candidate:
    return Candidate(flags, time, plan_memory(time.job, time.card))


def _seconds(timed: tuple[TimePlan, Flags]) -> float:
    return timed[0].step_seconds


def _timed(
    run: RunConfig,
    card: Card,
    legal: Legal,
    global_batch: int,
    recompute: tuple[str, ...] = RECOMPUTE,
    offload: tuple[bool, ...] = (False, True),
) -> Iterator[tuple[TimePlan, Flags]]:
    for changed in _combinations(run.words, run.processes, recompute, offload):
        try:
            job = Job.from_run(run.with_words(changed), card)
        except UserError:
            continue
        if not legal(run.with_words(changed | {MICRO_BATCH: ["1"], ACCUMULATION: ["1"]})):
            continue
        micro_batch = 1
        while global_batch % (micro_batch * job.layout.data_ranks) == 0:
            steps = global_batch // (micro_batch * job.layout.data_ranks)
            sized = changed | {MICRO_BATCH: [str(micro_batch)], ACCUMULATION: [str(steps)]}
            yield plan_time(job.changed(micro_batch=micro_batch, accumulation=steps), card).spread, sized
            micro_batch *= 2


def _combinations(
    flags: Flags, processes: int, recompute_grades: tuple[str, ...], offloads: tuple[bool, ...]
) -> Iterator[Flags]:
    """The run divided in every way, legal or not. What stays at its default is not stated."""
    others = {name: words for name, words in flags.items() if name not in DIVIDING}
    for tensor, pipeline in factors(processes):
        stages = ("",) if tensor * pipeline == processes else STAGES
        ways = product(stages, recompute_grades, offloads, (False, True) if tensor > 1 else (False,))
        for stage, recompute, offload, sequence in ways:
            yield others | _stated(
                tensor_parallel_degree=str(tensor) if tensor > 1 else "",
                pipeline_parallel_degree=str(pipeline) if pipeline > 1 else "",
                sequence_parallel="1" if sequence else "",
                sharding=stage,
                recompute="1" if recompute else "",
                recompute_granularity=recompute,
                offload_optim="1" if offload else "",
            )


def _stated(**values: str) -> Flags:
    return {name: [value] for name, value in values.items() if value}
