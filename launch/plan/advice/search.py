"""The fastest layouts of a run that fit on given cards."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from launch.config.flag_values import Flags
from launch.config.layout import ACCUMULATION
from launch.errors import UserError
from launch.plan.advice.edits import MICRO_BATCH, factors
from launch.plan.hardware import Card
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.memory_plan import MemoryPlan
from launch.plan.time_plan import TimePlan, plan_time

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
        """Of the fullest card."""
        return self.memory.peak_bytes

    @property
    def fits(self) -> bool:
        return bool(self.memory.fits)


def fastest_layouts(
    script: str,
    flags: Flags,
    processes: int,
    card: Card,
    legal: Callable[[Flags], bool],
    global_batch: int,
) -> list[Candidate]:
    """The fastest WAYS that fit, one for each layout, fastest first.

    All legal combinations of tensor, pipeline and sequence parallel, sharding, offload, micro batch and recompute, with
    as many samples a step. Time is computed for all, memory in the order of time until enough fit.
    """
    found: list[Candidate] = []
    missed = _Missed(card)
    for time, changed in sorted(_timed(script, flags, processes, card, legal, global_batch), key=_seconds):
        if any(time.job.layout == candidate.job.layout for candidate in found) or missed.rules_out(time.job):
            continue
        candidate = _candidate(time, changed)
        if candidate.fits:
            found.append(candidate)
        else:
            missed.add(time.job)
        if len(found) == WAYS:
            break
    return found


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
            self.smallest[_division(job)] = [] if plan_memory(least, self.card).fits else [_size(least)]
        micro_batch, recompute = _size(job)
        return any(micro_batch >= one and recompute <= other for one, other in self.smallest[_division(job)])


def _division(job: Job) -> tuple:
    return job.layout, job.sequence_parallel, job.offload


def _size(job: Job) -> tuple[int, int]:
    return job.micro_batch, RECOMPUTE.index(job.recompute)


def smallest_layout(
    script: str, flags: Flags, processes: int, card: Card, legal: Callable[[Flags], bool], global_batch: int
) -> Candidate | None:
    """What needs the least memory, for a message where nothing fits; None where nothing is legal."""
    ways = _timed(script, flags, processes, card, legal, global_batch)
    least = [way for way in ways if way[0].job.micro_batch == 1 and way[0].job.recompute in ("full", "")]
    return min((_candidate(*way) for way in least), key=lambda candidate: candidate.peak_bytes, default=None)


def _candidate(time: TimePlan, flags: Flags) -> Candidate:
    return Candidate(flags, time, plan_memory(time.job, time.card))


def _seconds(timed: tuple[TimePlan, Flags]) -> float:
    return timed[0].step_seconds


def _timed(
    script: str, flags: Flags, processes: int, card: Card, legal: Callable[[Flags], bool], global_batch: int
) -> Iterator[tuple[TimePlan, Flags]]:
    for changed in _combinations(flags, processes):
        try:
            job = Job.from_flags(script, changed, processes, card)
        except UserError:
            continue
        if not legal(changed | {MICRO_BATCH: ["1"], ACCUMULATION: ["1"]}):
            continue
        micro_batch = 1
        while global_batch % (micro_batch * job.layout.data_ranks) == 0:
            steps = global_batch // (micro_batch * job.layout.data_ranks)
            sized = changed | {MICRO_BATCH: [str(micro_batch)], ACCUMULATION: [str(steps)]}
            yield plan_time(job.changed(micro_batch=micro_batch, accumulation=steps), card), sized
            micro_batch *= 2


def _combinations(flags: Flags, processes: int) -> Iterator[Flags]:
    """The run divided in every way, legal or not. What stays at its default is not stated."""
    others = {name: words for name, words in flags.items() if name not in DIVIDING}
    for tensor, pipeline in factors(processes):
        stages = ("",) if tensor * pipeline == processes else STAGES
        ways = product(stages, RECOMPUTE, (False, True), (False, True) if tensor > 1 else (False,))
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
