"""What is proposed for a run, each a call of launch/plan/search.py, with the ARGS that make it so.

fit(run, card)                     # FIT: the trained model stays the same
changes_that_fit(run, card, 3)     # advice where it does not fit
faster_ways(run, card)             # advice where it does
layouts_on(run, card, cards=2)     # make fit
"""

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf

from launch import preflight
from launch.config.flag_values import flag_arguments
from launch.config.layout import ACCUMULATION, EVALUATION_BATCH, MICRO_BATCH
from launch.config.run_config import ONE_NODE, Nodes, RunConfig
from launch.config.typed import within_quotes
from launch.errors import UserError
from launch.plan.hardware import GIB, Card
from launch.plan.job import Job
from launch.plan.memory_model import TIGHT, plan_memory
from launch.plan.plan_report import ThisRun, speed_of
from launch.plan.search import Candidate, Edit, SearchLimits, best, candidates
from launch.plan.variations import (
    DEFAULTS,
    MODEL,
    ONE_EVALUATED,
    SAMPLED_AT_ONCE,
    SLICES,
    layouts,
    literature,
    long_text_edits,
    moment_edits,
    offloads,
    recomputes,
    samplings,
    shared_sample_edits,
    undivided,
    vocabulary_edits,
)

# ---- FIT

# What a candidate leaves free where it can: no published run took more beyond its plan, as a share of what it took
# (docs/plan.md; a test holds it).
SPARE = 0.085
# A recipe that fits is changed, and a faster way offered, only for a step that is shorter by more than this share.
WORTH = 0.05
# Of candidates whose steps differ by this share at most, the one with the smaller micro batch or found first is taken.
CLOSE = 0.02

# Flags that are chosen together: where the user gives one of them, the others stay, too.
BATCH = (MICRO_BATCH, ACCUMULATION)
RECOMPUTE = ("recompute", "recompute_granularity", "offload", SLICES)
OFFLOAD = ("sharding", "offload_optim")
EVALUATION = (EVALUATION_BATCH,)
ANSWERS = (SAMPLED_AT_ONCE,)
GROUPS = (OFFLOAD, RECOMPUTE, BATCH, EVALUATION, ANSWERS)


@dataclass(frozen=True)
class Fitting:
    """The run as requested, and the candidate that was chosen: the same where nothing is changed.

    Attributes:
        batch_stays: Why the micro batch is not changed; "" where it may be.
    """

    before: Candidate
    after: Candidate
    batch_stays: str = ""

    def lines(self) -> list[str]:
        """Return a line for each change with memory and speed, after why the micro batch stays, if it must."""
        lines, candidate, job = [], self.before, self.before.job
        if self.batch_stays:
            lines.append(f"{_batch(job)} stays as it is: {self.batch_stays}")
        for edit in self.after.edits:
            following = self.after if edit is self.after.edits[-1] else candidate.with_edit(edit)
            memory = f"{candidate.peak_bytes / GIB:.1f} -> {following.peak_bytes / GIB:.1f}"
            slowdown = f"{following.seconds / candidate.seconds:.2f}"
            lines.append(f"{edit.title}: {memory} GiB, time a token x {slowdown}")
            candidate = following
        return lines


def fit(run: RunConfig, card: Card, host_bytes: float = inf) -> Fitting:
    """Return the fastest candidate that fits the cards, if the run leaves less than SPARE free or is slower by WORTH.

    It trains the same. Changed are micro batch against accumulation, the grade of recompute, the evaluation batch, the
    answers that are sampled at once, and the offload to host memory. Candidates without SPARE are a last resort. More
    is offloaded only where nothing fits without, activations only where the optimizer there is not enough.

    Args:
        run: the run to fit
        card: of its ranks
        host_bytes: host memory for each rank

    Raises:
        UserError: there is no such model or layout
    """
    before = Candidate(run, card, Job.from_run(run, card))
    job, samples = before.job, before.job.micro_batch * before.job.accumulation
    batch_stays = _batch_stays(job, run)
    sizes = [size for size in range(1, samples + 1) if samples % size == 0]
    on_host, again = (
        [(), *((edit,) for edit in edits(job) if not is_given(group, run))]
        for edits, group in ((offloads, OFFLOAD), (recomputes, RECOMPUTE))
    )
    vary = [(*kept, *grade, *more) for kept in on_host for grade in again for more in _samplings(run, samples)]
    kept_sizes = batch_stays or is_given(BATCH, run)
    on_card, offloaded, last = [], [], []
    for candidate in candidates(run, card, vary, job.global_batch, () if kept_sizes else sizes):
        more = candidate.job.offload.keeps_more_than(job.offload)
        (on_card if not more else last if candidate.job.offload.activations else offloaded).append(candidate)
    one_evaluated = job.eval_batch > 1 and job.layout.pipeline_parallel_degree == 1 and not is_given(EVALUATION, run)
    spared, whole = (1 - SPARE) * card.memory_bytes, card.memory_bytes
    limits = SearchLimits(spared, allows=_is_legal, free=ONE_EVALUATED if one_evaluated else None, close=CLOSE)
    attempts = [(on_card, spared, inf)]
    if before.needed(spared) <= spared:
        limits = replace(limits, below=before.seconds * (1 - WORTH))
    if before.needed(whole) > whole:
        attempts += [(on_card, whole, inf)]
        attempts += [(pool, room, host_bytes) for pool in (offloaded, last) for room in (spared, whole)]
    for pool, room, host in attempts:
        for after in best(pool, _seconds, replace(limits, device_bytes=room, host_bytes=host)):
            return Fitting(before, after, batch_stays)
    return Fitting(before, before, batch_stays)


def _samplings(run: RunConfig, samples: int) -> list[tuple[Edit, ...]]:
    """Return the numbers of answers at once that are tried, the run's own first. samples: prompts of a step."""
    return [(), *(() if is_given(ANSWERS, run) else ((edit,) for edit in samplings(run.flags, samples)))]


def _batch_stays(job: Job, run: RunConfig) -> str:
    """Return why another micro batch would train another model; "" where it would not, and where there is no other.

    Packed rows are not padded to each other. Fine-tuning leaves the auxiliary loss out (launch/training/losses.py).
    """
    if is_given(BATCH, run) or job.micro_batch * job.accumulation == 1:
        return ""
    if run.flags.neftune and not run.flags.zero_padding:
        return "the noise of NEFTune becomes smaller the longer a micro batch is padded"
    if not job.own_loss and job.config.get("output_router_logits"):
        return "the auxiliary loss of the experts is a mean over the micro batch"
    return ""


def is_given(group: tuple[str, ...], run: RunConfig) -> bool:
    """Return True if the user has given one of the flags."""
    return not run.own.keys().isdisjoint(group)


def _seconds(candidate: Candidate) -> float:
    return candidate.seconds


def _is_legal(candidate: Candidate) -> bool:
    return preflight.is_legal(candidate.run.with_explicit(candidate.flags))


def _batch(job: Job) -> str:
    return f"micro batch {job.micro_batch} x accumulation {job.accumulation}"


# ---- ARGS


@dataclass(frozen=True)
class Proposal:
    """A candidate that is offered.

    Attributes:
        arguments: ARGS that make a recipe's run so.
        slowdown: Time a token, compared with the run as requested; of no meaning on other cards.
    """

    candidate: Candidate
    arguments: str
    slowdown: float = 1.0

    @property
    def title(self) -> str:
        """The title of the candidate."""
        tight = " (tight)" if self.candidate.memory.tight else ""
        return " + ".join(edit.title for edit in self.candidate.edits) + tight

    @property
    def result(self) -> str:
        """The changes of the trained model; "" where the run computes the same."""
        return "; ".join(edit.result for edit in self.candidate.edits if edit.result)


# What FIT would choose, were it not given.
PINNED = (*BATCH, "recompute", "offload_optim")


def arguments_of(run: RunConfig, candidate: Candidate, pinned: tuple[str, ...] = ()) -> str | None:
    """Return the ARGS that make a recipe's run the candidate.

    They are the user's own, FIT's changes, which it leaves alone where they are given, and all different flags. None
    where no whole accumulation leads to the candidate's samples: ARGS' counts on the recipe's own layout.

    Args:
        run: the recipe's
        candidate: of the run
        pinned: flags that are given even where they do not differ
    """
    before, fitted, flags = run.explicit, run.fitted or {}, candidate.flags
    if pinned:
        flags |= {MICRO_BATCH: [str(candidate.job.micro_batch)], ACCUMULATION: [str(candidate.job.accumulation)]}
    if run.recipe_layout:
        samples, ranks = candidate.job.global_batch, run.recipe_layout.data_ranks
        steps, rest = divmod(samples, candidate.job.micro_batch * ranks)
        if rest:
            return None
        kept = {ACCUMULATION: [str(samples // (run.flags.per_device_train_batch_size * ranks))]}
        before, flags = before | kept, flags | {ACCUMULATION: [str(steps)]}
        fitted |= kept if ACCUMULATION in fitted else {}
    # A flag of a layout that a candidate does not state is at its default.
    flags = {name: words for name, words in DEFAULTS.items() if pinned or name in before.keys() - flags.keys()} | flags
    changed = {
        name: words for name, words in flags.items() if name in pinned or words != before.get(name, DEFAULTS.get(name))
    }
    return shlex.join(flag_arguments(run.own | fitted | changed))


def _proposals(
    run: RunConfig, found: Iterable[Candidate], slowdown: Callable[[Candidate], float], pinned: tuple[str, ...] = ()
) -> list[Proposal]:
    """Return what ARGS can state of the candidates."""
    stated = ((candidate, arguments_of(run, candidate, pinned)) for candidate in found)
    return [Proposal(one, arguments, slowdown(one)) for one, arguments in stated if arguments is not None]


# ---- advice where a run does not fit

SHOWN = 3  # changes in the fix of a finding
LISTED = 8  # changes below a plan
CHEAPEST, SPARED = 3, 0.1  # changes after an out-of-memory error, and what each must save at least
# Pairs are extended by a third change only where hardly any pair fits, and only those that come closest.
ENOUGH, CLOSEST = 3, 8


def changes_that_fit(run: RunConfig, card: Card, count: int) -> list[Proposal]:
    """Return changes after which the run fits on such cards, the fastest first, ties in the literature's order.

    Tight ones last. Empty where nothing of the list, up to three at a time, is enough.

    The fastest change of each set of kinds is given: one of micro batches 1 and 2, one of stages 2 and 3. None contains
    another that suffices; a smaller model is combined with others only where nothing else helps.
    """
    try:
        job = Job.from_run(run, card)
    except UserError:
        return []
    edits = list(literature(run, job))
    number_of = {id(edit): number for number, edit in enumerate(edits)}
    same_model = [edit for edit in edits if edit.kind != MODEL]
    before, room = Candidate(run, card, job), card.memory_bytes
    found: list[Candidate] = []
    tried: list[Candidate] = []  # that were planned

    def slowdown(candidate: Candidate) -> float:
        return before.time.tokens_per_second / candidate.time.tokens_per_second

    def rounded(candidate: Candidate) -> float:
        return round(slowdown(candidate), 2)

    def order(candidate: Candidate) -> tuple[int, ...]:
        return tuple(number_of[id(edit)] for edit in candidate.edits)

    def allows(candidate: Candidate) -> bool:
        """Leave out a pair of which one is enough, and a third edit that joins kinds that are enough without it."""
        mine = set(order(candidate))
        parts = [one for one in (*alone, *found) if mine.issuperset(order(one)) and len(one.edits) < len(mine)]
        if len(candidate.edits) > 2:
            parts += [one for one in found if set(one.kinds) < set(candidate.kinds)]
        if any(one.needed(room) <= room for one in parts) or not _is_legal(candidate):
            return False
        tried.append(candidate)
        return True

    def search(vary: Iterable[tuple[Edit, ...]]) -> list[Candidate]:
        limits = SearchLimits(room, allows=allows, count=count, kind=lambda candidate: candidate.kinds)
        return best(candidates(run, card, vary, job.global_batch), rounded, limits, found)

    singles = [(edit,) for edit in edits]
    alone = [one for one in candidates(run, card, singles, job.global_batch) if _is_legal(one)]
    found = search(singles)
    found = search(combinations(same_model, 2))
    if len(found) < ENOUGH:
        missed = [candidate for candidate in tried if candidate.needed(room) > room]
        closest = sorted(missed, key=lambda candidate: candidate.needed(room))[:CLOSEST]
        numbers = {tuple(sorted({*order(one), number_of[id(edit)]})) for one in closest for edit in same_model}
        found = search(tuple(edits[number] for number in each) for each in sorted(numbers) if len(each) == 3)
    if not found:
        found = search(combinations(edits, 2))
    found.sort(key=lambda candidate: (candidate.memory.tight, rounded(candidate), order(candidate)))
    return _proposals(run, found, slowdown)


def advice_lines(changes: list[Proposal]) -> list[str]:
    """Return two or three lines a change: memory and time, what it is; its flags; what else is trained then."""
    if not changes:
        return ["no change of the list makes it fit, up to three at a time: more or larger cards, or a smaller model"]
    lines = ["what makes it fit, fastest first (memory of a card, time a token):"]
    for number, change in enumerate(changes, start=1):
        memory = change.candidate.peak_bytes / GIB
        lines.append(f"{number:3d}. {memory:5.1f} GiB  x {change.slowdown:4.2f}  {change.title}")
        if change.result:
            lines.append(f"       {change.result}")
        lines.append(f'       ARGS="{within_quotes(change.arguments)}"')
    return lines


def in_one_line(changes: list[Proposal]) -> str:
    """Return the changes as the fix of a finding: flags, memory, time."""
    lines = []
    for number, change in enumerate(changes, start=1):
        size, time = f"{change.candidate.peak_bytes / GIB:.1f} GiB", f"time a token x {change.slowdown:.2f}"
        about = ", ".join(filter(None, [size, time, change.title, change.result]))
        lines.append(f'({number}) ARGS="{within_quotes(change.arguments)}": {about}')
    return "; ".join(lines) or "more or larger cards, or a smaller model"


def exit_code_of_plan(run: RunConfig, card: Card | None) -> int:
    """Return 1 where a planned run does not fit on such cards, unless --force 1 says that it is to start anyway."""
    return int(card is not None and not run.flags.force and not plan_memory(Job.from_run(run, card), card).fits)


def lines_below_a_plan(run: RunConfig, card: Card | None) -> list[str]:
    """Return advice where the run does not fit on such cards, and where it does what is faster.

    Nothing where no card is named.
    """
    if card is None:
        return []
    if plan_memory(Job.from_run(run, card), card).fits:
        return faster_lines(faster_ways(run, card)) if run.flags.do_train else []
    return advice_lines(changes_that_fit(run, card, LISTED))


def lines_after_out_of_memory(planned: ThisRun) -> list[str]:
    """Return the cheapest changes that bring the plan's peak, or the card's memory, down by SPARED.

    The plan was too low.
    """
    if planned.card is None:
        return []
    least = int((1 - SPARED) * min(planned.plan.peak_bytes, planned.card.memory_bytes))
    return advice_lines(changes_that_fit(planned.run, replace(planned.card, memory_bytes=least), CHEAPEST))


# ---- layouts

LAYOUTS = 3  # that are offered


def _divided(
    run: RunConfig, card: Card, samples: int, beside: tuple[Edit, ...] = (), **choices: tuple[str, ...]
) -> Iterator[Candidate]:
    """Yield the run divided in all ways, with micro batches that are powers of two. beside: edits of each."""
    sizes = [1 << exponent for exponent in range(samples.bit_length())]
    if run.flags.update_in_backward:  # which takes no accumulation
        sizes = [samples]
    more = _samplings(run, samples)
    vary = ((edit, *each, *beside) for edit in layouts(run.processes, **choices) for each in more)
    return candidates(run.with_explicit(undivided(run.explicit)), card, vary, samples, sizes)


def _fastest(found: Iterable[Candidate], limits: SearchLimits) -> list[Candidate]:
    """Return the fastest; tight ones only where no other fits."""
    found, room = list(found), limits.device_bytes
    spared = replace(limits, device_bytes=int((1 - TIGHT) * room))
    return best(found, _seconds, spared) or best(found, _seconds, limits)


def fastest_layouts(run: RunConfig, card: Card, samples: int) -> list[Candidate]:
    """Return the fastest LAYOUTS that fit, one candidate for each, fastest first, with as many samples a step.

    They are of all legal combinations of tensor, pipeline and sequence parallel, sharding, offload, micro batch and
    recompute; long samples are shared by ranks, too.
    """
    limits = SearchLimits(
        card.memory_bytes, allows=_is_legal, count=LAYOUTS, kind=lambda one: (one.job.layout, one.job.moment_item)
    )
    undivided_run = run.with_explicit(undivided(run.explicit))
    job = Job.from_run(undivided_run, card)
    beside = ((), *((edit,) for edit in (*shared_sample_edits(job), *moment_edits(job))))
    if found := _fastest((one for edits in beside for one in _divided(run, card, samples, edits)), limits):
        return found
    # Samples fit no card as they are: one by one, by what makes room for long texts, then with the word embedding in
    # host memory, too, last with an output layer in fewer bits, which is rounded.
    edits, more = [(edit,) for edit in long_text_edits(job)], tuple(vocabulary_edits(job))
    smaller = [[(*kept, *more[:count]) for kept in edits] for count in range(len(more) + 1)]
    tried = (candidates(undivided_run, card, each, samples, [1]) for each in smaller)
    if found := next((found for each in tried if (found := _fastest(each, limits))), []):
        return found
    least = smallest_layout(run, card, samples)
    return [least] if least and least.peak_bytes <= card.memory_bytes else []


def smallest_layout(run: RunConfig, card: Card, samples: int) -> Candidate | None:
    """Return what needs the least memory, on one process with all of vocabulary_edits; None where nothing is legal."""
    job = Job.from_run(run.with_explicit(undivided(run.explicit)), card)
    edits = tuple(vocabulary_edits(job)) if run.processes == 1 else ()
    divided = _divided(run, card, samples, edits, grades=("full", ""))
    least = (candidate for candidate in divided if candidate.job.micro_batch == 1 and _is_legal(candidate))
    return min(least, key=lambda candidate: candidate.peak_bytes, default=None)


def smallest_form(run: RunConfig, card: Card, samples: int) -> Proposal | None:
    """Return smallest_layout of a quantized base on one process, whose output layer has its own weight.

    None elsewhere, and where it does not fit.
    """
    if run.processes > 1 or not run.flags.weight_quantize_algo:
        return None
    least = smallest_layout(run, card, samples)
    found = [least] if least and least.job.host_embedding and least.peak_bytes <= card.memory_bytes else []
    return next(iter(_proposals(run, found, lambda candidate: 1.0, PINNED)), None)


def layouts_on(run: RunConfig, card: Card, cards: int, nodes: Nodes = ONE_NODE) -> tuple[RunConfig, list[Proposal]]:
    """Return the run of a recipe's own cards on `cards` cards a node, and its fastest layouts that fit.

    They have as many samples a step.
    """
    samples, processes = run.global_batch, nodes.count * cards
    if processes != run.processes:
        run = replace(run, processes=processes, devices=tuple(map(str, range(cards))), recipe_layout=run.layout)
    run = replace(run, nodes=nodes)
    return run, _proposals(run, fastest_layouts(run, card, samples), lambda candidate: 1.0, PINNED)


def faster_ways(run: RunConfig, card: Card) -> list[Proposal]:
    """Return the fastest candidate that fits in the run's own layout, and in others, if it is worth a change.

    The trained model stays the same: a step has the same samples. Of recompute all or nothing is tried.
    """
    before = Candidate(run, card, Job.from_run(run, card))
    limits = SearchLimits(
        card.memory_bytes,
        allows=_is_legal,
        below=before.seconds / (1 + WORTH),
        count=2,
        kind=lambda candidate: candidate.job.layout == before.job.layout,
    )
    divided = _divided(run, card, before.job.global_batch, grades=("", "full"), offload=("",))
    pinned = () if run.fitted is None else PINNED
    return _proposals(run, _fastest(divided, limits), lambda one: one.seconds / before.seconds, pinned)


def faster_lines(ways: list[Proposal]) -> list[str]:
    """Return two lines a way: speed, memory, what it is; its flags."""
    lines = ["what is faster, with the same samples a step (speed, memory of a card):"] if ways else []
    for way in ways:
        job, memory = way.candidate.job, way.candidate.peak_bytes / GIB
        recompute = f"recompute {job.recompute}" if job.recompute else "no recompute"
        lines.append(f"  x {1 / way.slowdown:4.2f}  {memory:5.1f} GiB  {job.layout}; {_batch(job)}, {recompute}")
        lines.append(f'       ARGS="{within_quotes(way.arguments)}"')
    return lines


def describe(candidate: Candidate) -> str:
    """Return a candidate in words, such as "2 processes: sharding stage2 2; micro batch 4 x accumulation 2"."""
    job, time, card = candidate.job, candidate.time, candidate.card
    others = [
        f"recompute {job.recompute}" if job.recompute else "",
        "sequence parallel" if job.sequence_parallel else "",
        "optimizer in host memory between steps" if job.offload.returns else "",
        "factored moments" if job.factored else "",
        "moments in 8 bits" if job.eight_bits else "",
        "moments in host memory" if job.eight_bits and job.offload.optimizer else "",
        "offload" if job.offload.gradients else "",
        f"{job.sampled_at_once} answers at once" if job.sampled_at_once else "",
        "activations in host memory" if job.offload.activations else "",
        "word embedding in host memory" if job.host_embedding else "",
        f"output layer in {job.base.bits} bits" if job.base and job.base.head else "",
        "MLPs and norms in slices" if job.slice_tokens else "",
    ]
    how = ", ".join([_batch(job), *filter(None, others)])
    tight = " (tight)" if candidate.memory.tight else ""
    memory = f"{candidate.peak_bytes / GIB:.1f} of {card.memory_bytes / GIB:.1f} GiB{tight}"
    error = f" (± {time.error:.0%})" if time.calibrated else ""
    crossing = f" (between nodes: {job.crossing})" if job.crossing else ""
    return f"{job.layout}{crossing}; {how}: {memory}, {speed_of(time)} tokens/s{error}"
