"""A recipe fitted to its cards: changes that alter nothing of what is learned, where it does not fit or gets faster.

    fitting = fit(run, card, legal)
    fitting.words, fitting.lines()

Changed are micro batch against accumulation with as many samples a step, the grade of recompute, the evaluation batch,
and what is kept in host memory. Another layout or method is only offered (launch/plan/changes.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from launch.config.flag_values import Flags
from launch.config.layout import ACCUMULATION, EVALUATION_BATCH, MICRO_BATCH
from launch.config.run_config import RunConfig
from launch.plan.hardware import GIB, Card
from launch.plan.job import Job, Offload
from launch.plan.memory_model import host_bytes as needed_on_host
from launch.plan.memory_model import is_far_too_large, plan_memory
from launch.plan.time_plan import plan_time

# What a way leaves free where it can: no published run took more beyond its plan, as a share of what it took
# (docs/plan.md; a test holds it).
SPARE = 0.085
# A recipe that fits is changed only for a step that is shorter by more than this share.
WORTH = 0.05
# Of ways whose steps differ by this share at most, the one with the smaller micro batch, or found first, is taken.
CLOSE = 0.02

# Flags that are chosen together: where the user gives one of them, the others stay, too.
BATCH = (MICRO_BATCH, ACCUMULATION)
RECOMPUTE = ("recompute", "recompute_granularity", "offload")
OFFLOAD = ("sharding", "offload_optim")
EVALUATION = (EVALUATION_BATCH,)
GROUPS = (OFFLOAD, RECOMPUTE, BATCH, EVALUATION)
GRADES = ("", "core_attn", "full_attn", "full")

Legal = Callable[[RunConfig], bool]


@dataclass(frozen=True)
class Way:
    """A run with some of its flags changed. changes: of which group of flags, and to what."""

    job: Job
    card: Card
    changes: dict[tuple[str, ...], Flags]

    @cached_property
    def seconds(self) -> float:
        """Of a step; all ways have as many samples a step."""
        return plan_time(self.job, self.card).spread.step_seconds

    @cached_property
    def peak_bytes(self) -> int:
        """On the fullest card."""
        return plan_memory(self.job, self.card).peak_bytes

    @property
    def words(self) -> Flags:
        return {name: words for changed in self.changes.values() for name, words in changed.items()}

    def fits(self, share: float) -> bool:
        """Whether it takes this share of the card's memory at most. What is far too large is not planned in full."""
        room = share * self.card.memory_bytes
        return not is_far_too_large(self.job, room) and self.peak_bytes <= room

    def changed(self, group: tuple[str, ...], flags: Flags, **values) -> "Way":
        """With other flags of one group, which mean these values of the job."""
        return replace(self, job=self.job.changed(**values), changes=self.changes | {group: flags})


@dataclass(frozen=True)
class Fitting:
    """The run as it stands, and the way that was chosen: the same where nothing is changed. batch_stays: why the micro
    batch is not changed; "" where it may be."""

    before: Way
    after: Way
    batch_stays: str = ""

    @property
    def words(self) -> Flags:
        """The flags that change."""
        return self.after.words

    def lines(self) -> list[str]:
        """Why the micro batch stays, if it must; a line for each change with memory and speed, one after the other."""
        lines, way = [], self.before
        if self.batch_stays:
            lines.append(f"{_title(BATCH, way.job)} stays as it is: {self.batch_stays}")
        for group, flags in self.after.changes.items():
            following = way.changed(group, flags, **_values(group, way.job, self.after.job))
            memory = f"{way.peak_bytes / GIB:.1f} -> {following.peak_bytes / GIB:.1f}"
            slowdown = f"{following.seconds / way.seconds:.2f}"
            lines.append(f"{_title(group, self.after.job)}: {memory} GiB, time a token x {slowdown}")
            way = following
        return lines


def fit(run: RunConfig, card: Card, legal: Legal, host_bytes: float = inf) -> Fitting:
    """The fastest way that fits the cards, if the run does not leave SPARE free, or if it is faster by more than WORTH.

    What fits without SPARE is a last resort. More is kept in host memory only where nothing fits without, activations
    only where the optimizer there is not enough. legal: whether the flags of a run go together (launch.preflight).
    host_bytes: host memory for each rank. Raises UserError where there is no such model or layout.
    """
    before = Way(Job.from_run(run, card), card, {})
    batch_stays = _batch_stays(before.job, run)
    longest = before.seconds * (1 - WORTH) if before.fits(1 - SPARE) else inf
    on_card, offloaded, last = [], [], []
    for way in _divisions(before, run):
        if not way.job.offload.keeps_more_than(before.job.offload):
            on_card.append(way)
        else:
            (last if way.job.offload.activations else offloaded).append(way)
    attempts = [(on_card, 1 - SPARE, inf)]
    if not before.fits(1.0):
        attempts.append((on_card, 1.0, inf))
        attempts += [(ways, share, host_bytes) for ways in (offloaded, last) for share in (1 - SPARE, 1.0)]
    for ways, share, room in attempts:
        if fastest := _fastest(ways, run, legal, share, longest, room):
            return Fitting(before, fastest, batch_stays)
    return Fitting(before, before, batch_stays)


def _fastest(
    ways: list[Way], run: RunConfig, legal: Legal, share: float, longest: float, host_bytes: float
) -> Way | None:
    """The fastest way that takes at most this share of a card's memory, and so much of the host's, and fewer seconds a
    step; None without one.

    Divisions are tried in the order of the speed that they would have in unlimited memory.
    """
    chosen = None
    divisions = [batches for way in ways if (batches := _in_host_memory(_batches(way, run), host_bytes))]
    for batches in sorted(divisions, key=lambda batches: batches[-1].seconds):
        faster = [way for way in batches if way.seconds < longest]
        if not faster:
            break
        if legal(run.with_words(run.words | faster[0].words)) and (way := _largest_that_fits(faster, run, share)):
            chosen, longest = way, way.seconds * (1 - CLOSE)
    return chosen


def _largest_that_fits(batches: list[Way], run: RunConfig, share: float) -> Way | None:
    """Of ways with ever larger micro batches, the largest that fits, or a smaller one that is nearly as fast.

    A larger micro batch needs more memory: after the smallest, the others are looked through by bisection.
    """
    fitting, first, behind, middle = None, 0, len(batches), 0
    while first < behind:
        if way := _with_evaluation(batches[middle], run, share):
            fitting, first = way, middle + 1
        else:
            behind = middle
        middle = (first + behind) // 2
    if fitting is None:
        return None
    near = next(way for way in batches if way.seconds <= (1 + CLOSE) * fitting.seconds)
    return _with_evaluation(near, run, share)


def _with_evaluation(way: Way, run: RunConfig, share: float) -> Way | None:
    """The way itself if it fits, else with an evaluation in batches of 1 if that does; else None.

    Our evaluation sums the losses of all samples, so that its batch changes no result.
    """
    if way.fits(share):
        return way
    pipeline = way.job.layout.pipeline_parallel_degree > 1  # evaluates in the micro batches of training
    if way.job.eval_batch <= 1 or pipeline or is_given(EVALUATION, run):
        return None
    single = way.changed(EVALUATION, {EVALUATION_BATCH: ["1"]}, eval_batch=1)
    return single if single.fits(share) else None


def _divisions(before: Way, run: RunConfig) -> Iterator[Way]:
    """What is kept in host memory, and what is computed again."""
    for offloaded in _offloads(before, run):
        yield from _recomputes(offloaded, run)


def _offloads(before: Way, run: RunConfig) -> Iterator[Way]:
    """The optimizer's states, or with them gradients and parameters, in host memory; in the stage as it is."""
    yield before
    job, stage = before.job, before.job.layout.sharding
    if is_given(OFFLOAD, run):
        return
    kinds = [Offload()]
    if job.trains_all and (job.layout.data_ranks == 1 or stage in ("stage2", "stage3")):
        kinds.append(Offload(optimizer=True, returns=True))
    if stage == "stage3" or (stage == "stage2" and job.trains_all):
        kinds.append(Offload(optimizer=True, gradients=True, parameters=stage == "stage3"))
    for kind in kinds:
        offload = replace(kind, activations=job.offload.activations)
        if offload == job.offload:
            continue
        flags: Flags = {}
        if stage and offload.gradients != job.offload.gradients:
            flags["sharding"] = [f"{stage} offload" if offload.gradients else stage]
        if offload.returns != job.offload.returns:
            flags["offload_optim"] = ["1" if offload.returns else "0"]
        if flags:
            yield before.changed(OFFLOAD, flags, offload=offload)


def _recomputes(way: Way, run: RunConfig) -> Iterator[Way]:
    """With each grade, and with the inputs of layers that are computed again in host memory."""
    yield way
    job = way.job
    if is_given(RECOMPUTE, run) or "recompute" in job.family.lacking:
        return
    for grade in GRADES:
        if grade != job.recompute:
            flags = {"recompute": ["1"], "recompute_granularity": [grade]} if grade else {"recompute": ["0"]}
            yield way.changed(RECOMPUTE, flags, recompute=grade)
    if not job.offload.activations:
        flags = {"recompute": ["1"], "recompute_granularity": ["full"], "offload": ["activations"]}
        yield way.changed(RECOMPUTE, flags, recompute="full", offload=replace(job.offload, activations=True))


def _batches(way: Way, run: RunConfig) -> list[Way]:
    """Each micro batch that divides the samples of a step, up to the fastest."""
    if is_given(BATCH, run) or _batch_stays(way.job, run):
        return [way]
    samples = way.job.micro_batch * way.job.accumulation
    ways = []
    for size in (size for size in range(1, samples + 1) if samples % size == 0):
        flags = {MICRO_BATCH: [str(size)], ACCUMULATION: [str(samples // size)]}
        other = way.changed(BATCH, flags, micro_batch=size, accumulation=samples // size)
        ways.append(way if size == way.job.micro_batch else other)
        if len(ways) > 1 and ways[-1].seconds >= ways[-2].seconds:  # a pipeline has too few micro batches then
            return ways[:-1]
    return ways


def _batch_stays(job: Job, run: RunConfig) -> str:
    """Why another micro batch would change what is learned; "" where it would not, and where there is no other.

    Packed rows are not padded to each other. Fine-tuning leaves the auxiliary loss out (launch/training/losses.py).
    """
    if is_given(BATCH, run) or job.micro_batch * job.accumulation == 1:
        return ""
    if run.flags.neftune and not run.flags.zero_padding:
        return "the noise of NEFTune becomes smaller the longer a micro batch is padded"
    if not job.finetunes and job.config.get("output_router_logits"):
        return "the auxiliary loss of the experts is a mean over the micro batch"
    return ""


def _in_host_memory(ways: list[Way], host_bytes: float) -> list[Way]:
    """Those whose ranks take no more of the host's memory."""
    return [way for way in ways if host_bytes == inf or sum(needed_on_host(way.job).values()) <= host_bytes]


def is_given(group: tuple[str, ...], run: RunConfig) -> bool:
    """Whether the user has given one of the flags."""
    return not run.own.keys().isdisjoint(group)


def _values(group: tuple[str, ...], before: Job, job: Job) -> dict:
    """What the flags of a group mean, in a job. before: without them."""
    activations = job.offload.activations
    return {
        BATCH: {"micro_batch": job.micro_batch, "accumulation": job.accumulation},
        RECOMPUTE: {"recompute": job.recompute, "offload": replace(before.offload, activations=activations)},
        OFFLOAD: {"offload": replace(job.offload, activations=before.offload.activations)},
        EVALUATION: {"eval_batch": job.eval_batch},
    }[group]


def _title(group: tuple[str, ...], job: Job) -> str:
    if group == BATCH:
        return f"micro batch {job.micro_batch} x accumulation {job.accumulation}"
    if group == RECOMPUTE and job.offload.activations:
        return "recompute full, activations in host memory"
    if group == RECOMPUTE:
        return f"recompute {job.recompute}" if job.recompute else "no recompute"
    if group == EVALUATION:
        return "evaluation batch 1"
    if job.offload.parameters:
        return "optimizer, gradients and parameters in host memory"
    if job.offload.gradients:
        return "optimizer and gradients in host memory"
    return "optimizer in host memory between steps" if job.offload.returns else "nothing in host memory"
