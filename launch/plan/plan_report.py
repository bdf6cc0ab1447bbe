"""A plan as text of 80 columns and as JSON: memory by part and phase, the time of a step, whether it fits.

`this_run` plans the run that this process is a rank of, for messages after an out-of-memory error.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from data_tools.language import localized
from data_tools.terminal import columns, width, wrapped
from launch.config.run_config import RunConfig
from launch.devices.cards import list_cards
from launch.errors import UserError
from launch.families.arithmetic import ModelShape
from launch.families.parameters import layers
from launch.methods.preference_flags import ADAPTER_OFF, NONE, PRECOMPUTED, SECOND_COPY, TITLES
from launch.methods.registry import find_method
from launch.plan.goodput import MTBF_HOURS, Goodput, plan_goodput
from launch.plan.hardware import CPU, GIB, Card, kind_of
from launch.plan.job import FLOAT32, Job, Lora, Prefix
from launch.plan.memory_model import PARTS, MemoryPlan, plan_memory
from launch.plan.time_plan import DAY, TimePlan, plan_time

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)


def report(job: Job, card: Card | None, form: str = TEXT, steps: int = 0, mtbf_hours: float = MTBF_HOURS) -> str:
    """Return the plan of a job on such cards, to print.

    Args:
        job: Of the run.
        card: None for a CPU.
        form: One of FORMATS.
        steps: Of the run, 0 where unknown.
        mtbf_hours: Between two interruptions of a card.
    """
    plan, time = plan_memory(job, card), plan_time(job, card)
    if form == JSON:
        return json.dumps(as_json(job, plan, time, steps, mtbf_hours), indent=1)
    lines = [*memory_lines(job, plan), *time_lines(time, steps)]
    if card:
        lines += goodput_lines(job, plan_goodput(job, card, time.step_seconds, mtbf_hours))
    lines = [localized(line) for line in lines]
    return "\n".join(wrapped(line, further=" " * 6) if columns(line) > width() else line for line in lines)


NAME, COLUMN = 17, 9
STAGES_IN_WIDTH = 7


def memory_lines(job: Job, plan: MemoryPlan) -> list[str]:
    """Return the job in some lines, the parts of each pipeline stage at its peak, the verdict, the host, the disk."""
    host = ", ".join(f"{part} {size / GIB:.1f}" for part, size in plan.host.items())
    host = f"host memory of a rank: {sum(plan.host.values()) / GIB:.1f} GiB ({host})"
    disk = "disk: " + ", ".join(f"{part} {size / 1e9:,.1f} GB" for part, size in plan.disk.items())
    return [*describe(job), "", *_table(plan), "", verdict(plan), *rules(job, plan), host, disk]


def describe(job: Job) -> list[str]:
    """Return the job in three lines: model, layout, and how it computes.

    In one more the reference of preference tuning.
    """
    billions = ModelShape.from_config(job.config).parameters / 1e9
    tokens, sharing = job.batch * job.rank_length, job.layout.sep_parallel_degree
    length = f"{job.sequence_length}{f' / {sharing}' if sharing > 1 else ''}"
    beside = ", sequence parallel" if job.sequence_parallel else ""
    if job.offload.optimizer:
        beside += ", optimizer in host memory between steps" if job.offload.returns else ", offload"
    teacher = []
    if job.teacher:
        size = ModelShape.from_config(job.teacher).parameters / 1e9
        teacher.append(f"a teacher beside it: {job.compared.family.title}, {size:.2f} billion parameters")
    return [
        f"{job.family.title}, {billions:.2f} billion parameters, {layers(job.config)} layers; {method(job)}",
        *([f"{TITLES[job.loss_type]}; {REFERENCES[job.reference]}"] if job.loss_type else []),
        *teacher,
        *(["a reward model: one score of a text in place of logits"] if job.reward_model else []),
        f"{job.layout}{beside}; micro batch {job.micro_batch} x {_rows(job)}{length} = {tokens:,} tokens",
        *_network(job),
        ", ".join(_how(job)),
    ]


def _network(job: Job) -> list[str]:
    """Return the network, and its messages, where there are several nodes."""
    if job.network is None:
        return []
    assumed = ", assumed for these cards: NETWORK=... names another" if job.network.assumed else ""
    return [f"{job.nodes} nodes x {job.cards}, network {job.network}{assumed}; between nodes: {job.crossing}"]


REFERENCES = {
    NONE: "no reference",
    ADAPTER_OFF: "the reference is the model without its adapter",
    SECOND_COPY: "the reference is a second copy of the model",
    PRECOMPUTED: "the reference is computed once, before training",
}


def _rows(job: Job) -> str:
    """Return the rows of a sample, "2 x " for a pair."""
    return f"{job.rows} x " if job.rows > 1 else ""


def method(job: Job) -> str:
    """Return the method: all parameters, LoRA, or a prefix."""
    if isinstance(job.adapter, Lora):
        rank = job.adapter.rank
        if job.adapter.dora:
            return f"DoRA, rank {rank}, on a {job.base.bits}-bit base" if job.base else f"DoRA, rank {rank}"
        return f"LoRA, rank {rank}, on a {job.base.bits}-bit base" if job.base else f"LoRA, rank {rank}"
    if isinstance(job.adapter, Prefix):
        return f"a prefix of {job.adapter.tokens} tokens"
    return "all parameters are trained"


def _how(job: Job) -> list[str]:
    how = [job.compute if job.compute != FLOAT32 else f"float32{f' ({job.amp})' if job.amp else ''}"]
    how.append("flash attention" if job.flash_attention else "exact attention")
    how.append("fused RMSNorm" if job.fused_rms_norm else "own RMSNorm")
    how += ["fused rotary embedding"] if job.fused_rope else []
    how += ["tensor parallel beside products"] if job.tensor_parallel_overlap else []
    how.append(f"recompute {job.recompute}" if job.recompute else "no recompute")
    if job.moment_item < 4:
        how.append("factored moments" if job.factored else f"moments in {8 * job.moment_item} bits")
    if job.in_backward:
        how.append("updates within the backward pass")
    if job.offload.activations:
        how.append("activations in host memory")
    if job.host_embedding:
        how.append("word embedding in host memory")
    if job.slice_tokens:
        how.append(f"MLPs and norms by slices of {job.slice_tokens:,} tokens")
    if job.loss_chunk(job.config["vocab_size"] // job.layout.tensor_parallel_degree, job.trains_all):
        how.append("loss in chunks")
    return how


def _table(plan: MemoryPlan) -> list[str]:
    """Return the table, a column a stage; of more than fit, the stages with the highest peaks."""
    stages = sorted(plan.stages, key=lambda stage: -stage.peak.total_bytes)[:STAGES_IN_WIDTH]
    stages = sorted(stages, key=lambda stage: stage.stage)
    lines = [
        _row("GiB on a card", [f"stage {stage.stage}" for stage in stages]),
        _row("layers", [f"{stage.layers[0]}-{stage.layers[1]}" for stage in stages]),
        _row("peak phase", [stage.peak.name.split()[0] for stage in stages]),
    ]
    for part in PARTS:
        sizes = [stage.peak.parts.get(part, 0) for stage in stages]
        if any(sizes):
            lines.append(_row(part, [f"{size / GIB:.2f}" for size in sizes]))
    return [*lines, _row("together", [f"{stage.peak.total_bytes / GIB:.2f}" for stage in stages])]


def _row(name: str, cells: list[str]) -> str:
    name, *cells = map(localized, (name, *cells))
    return name + " " * (NAME - columns(name)) + "".join(" " * (COLUMN - columns(cell)) + cell for cell in cells)


def verdict(plan: MemoryPlan) -> str:
    """Return in one line whether the job fits."""
    stage = f", stage {plan.worst.stage}" if len(plan.stages) > 1 else ""
    needed = f"{plan.peak_bytes / GIB:.1f} GiB at the peak ({plan.worst.peak.name}{stage})"
    if plan.card is None:
        return f"{needed}; no card is named"
    kind = f"{plan.card.name}: {plan.card.memory_bytes / GIB:.1f} GiB"
    trust = "" if plan.calibrated else "; uncalibrated (docs/plan.md)"
    if plan.tight:
        return f"fits, but hardly anything stays free: {needed}, {kind}{trust}"
    return f"fits: {needed}, {kind}{trust}" if plan.fits else f"DOES NOT FIT: {needed}, {kind}{trust}"


def verdict_on_host(needed: int, there: int) -> str:
    """Return in one line whether a run without cards fits. needed, there: bytes of the machine's memory."""
    if needed < there:
        return f"fits: {needed / GIB:.1f} GiB at the peak, of {there / GIB:.1f} GiB of memory here"
    return f"DOES NOT FIT: {needed / GIB:.1f} GiB at the peak, of {there / GIB:.1f} GiB of memory here"


def as_json(job: Job, plan: MemoryPlan, time: TimePlan, steps: int = 0, mtbf_hours: float = MTBF_HOURS) -> dict:
    """Return the plan as data; docs/plan.md documents the keys. Bytes and seconds throughout."""
    return {
        "model": {"family": job.family.name, "parameters": ModelShape.from_config(job.config).parameters},
        "layout": str(job.layout),
        "network": str(job.network) if job.network else None,
        "card": plan.card.name if plan.card else None,
        "card_memory_bytes": plan.card.memory_bytes if plan.card else None,
        "calibrated": plan.calibrated,
        "fits": plan.fits,
        "peak_bytes": plan.peak_bytes,
        "stages": [
            {
                "stage": stage.stage,
                "layers": list(stage.layers),
                "peak_phase": stage.peak.name,
                "peak_bytes": stage.peak.total_bytes,
                "allocated_bytes": stage.peak.allocated_bytes,
                "phases": {phase.name: phase.parts for phase in stage.phases},
            }
            for stage in plan.stages
        ],
        "host_bytes": plan.host,
        "disk_bytes": plan.disk,
        "time": {
            "step_seconds": time.step_seconds,
            "tokens_per_second": time.tokens_per_second,
            "tokens_per_second_range": [share * time.tokens_per_second for share in time.shares],
            "parts_seconds": time.parts,
            "phases": {name: _phase_json(phase) for name, phase in time.phases.items()},
            "steps_seconds": time.seconds(steps) if steps else None,
            "million_samples_days": time.days(MILLION),
        },
        "goodput": _goodput_json(job, plan_goodput(job, plan.card, time.step_seconds, mtbf_hours))
        if plan.card
        else None,
    }


def _phase_json(phase: TimePlan) -> dict:
    return {
        "seconds": phase.step_seconds,
        "tokens": phase.tokens,
        "tokens_per_second": phase.tokens_per_second,
        "tokens_per_second_range": [share * phase.tokens_per_second for share in phase.shares],
        "parts_seconds": phase.parts or phase.sampling,
    }


def _goodput_json(job: Job, goodput: Goodput) -> dict:
    saved, best = job.save_steps, goodput.best_save_steps
    return {
        "interruptions_per_day": goodput.per_day,
        "restart_seconds": goodput.restart,
        "checkpoint_stall_seconds": goodput.stall,
        "save_steps": saved or None,
        "save_interval_seconds": saved * goodput.step or None,
        "share": goodput.share(saved) if saved else None,
        "best_save_steps": best,
        "best_save_interval_seconds": best * goodput.step,
        "best_share": goodput.share(best),
    }


STATES = ("parameters", "gradients")
ACTIVATIONS = ("attention", "MLP", "norms", "residuals", "embedding", "logits and loss")


def rules(job: Job, plan: MemoryPlan) -> list[str]:
    """Return a line for each rule that applies to such a job."""
    parts = plan.worst.peak.parts
    lines = []
    if job.layout.sharding == "stage3":
        states = 2 * 2 * ModelShape.from_config(job.config).parameters / job.layout.sharding_parallel_degree
        lines.append(
            f"rule of thumb 2 bytes x N x 2 / cards: at most {states / GIB:.1f} GiB of weights and "
            f"gradients; here {sum(parts.get(part, 0) for part in STATES) / GIB:.1f} GiB"
        )
    activations = activations_of_layers(job)
    if activations:
        lines.append(
            f"published rule (34 + 5 a s / h) s b h a layer: {activations / GIB:.1f} GiB of activations; "
            f"here {sum(parts.get(part, 0) for part in ACTIVATIONS) / GIB:.1f} GiB with the loss (docs/plan.md)"
        )
    return lines


def activations_of_layers(job: Job) -> float:
    """Return the bytes of a micro batch in 16 bit with exact attention and no recompute.

    0 where the rule does not apply.

    The rule is arXiv 2205.05198, equations 1, 2 and 4 (one process, tensor parallel, with sequence parallel), without
    pipelines.
    """
    if job.compute == FLOAT32 or job.flash_attention or job.recompute or job.layout.pipeline_parallel_degree > 1:
        return 0.0
    shape, ranks = ModelShape.from_config(job.config), job.layout.tensor_parallel_degree
    tokens = job.batch * job.sequence_length * shape.hidden_size
    scores = 5 * shape.num_attention_heads * job.sequence_length / shape.hidden_size
    whole = 10 / ranks if job.sequence_parallel else 10
    return shape.num_hidden_layers * tokens * (whole + (24 + scores) / ranks)


HOUR, MINUTE = 3600, 60
MILLION = 1_000_000
SHOWN = 4  # parts by name, the longest; the rest together


def time_lines(plan: TimePlan, steps: int = 0) -> list[str]:
    """Step, speed and duration, then where a step's time goes.

    steps: of the run; 0 where it follows from data that are not known yet: then how long a million samples take.
    """
    whole = (
        f"{steps:,} steps" if steps else f"a million samples of {_rows(plan.job)}{plan.job.sequence_length:,} tokens"
    )
    count = steps or MILLION / plan.job.global_batch
    before = [f"      before training, for the reference: {duration_of(plan, count * plan.before)} of it"]
    trust = f"± {plan.error:.0%} (docs/plan.md)" if plan.calibrated else "uncalibrated (docs/plan.md)"
    if plan.card.compute_capability is None and plan.card != CPU:
        trust = f"by {plan.card.full_flops / 1e9:,.0f} GFLOP/s a rank, measured by make doctor (docs/plan.md)"
    return [
        f"time: {duration_of(plan, plan.step_seconds)} a step, {speed_of(plan)} tokens/s on all ranks, "
        f"MFU {mfu_of(plan)}; {whole}: {duration_of(plan, plan.seconds(count))}; {trust}",
        *(before if plan.before else []),
        *([] if plan.phases else [f"      {_parts(plan)}"]),
        *_phases(plan),
    ]


def _phases(plan: TimePlan) -> list[str]:
    """Return a line each for sampling and learning, and what they assume; [] where nothing is sampled."""
    if not plan.phases:
        return []
    sampling, learning = (
        f"{phase.tokens:,} tokens in {duration_of(phase, phase.step_seconds)} "
        f"({phase.step_seconds / plan.step_seconds:.0%}), {speed_of(phase)} tokens/s: {_parts(phase)}"
        for phase in plan.phases.values()
    )
    return [
        f"      sampling: {sampling}",
        f"      learning: {learning}",
        "      with answers of the largest length, without rewards and replaced groups; decoding has no paged kernels, "
        "and was never measured as a whole on cards: half to double its speed is shown",
    ]


SELDOM, HARDLY = 1 / 30, 0.99  # interruptions a day, and the share of time that trains, that are not worth a line


def goodput_lines(job: Job, goodput: Goodput) -> list[str]:
    """Return lines about the cost of failures and checkpoints; [] where that is little: a few cards, short saves."""
    saved, best = job.save_steps, goodput.best_save_steps
    if goodput.per_day < SELDOM and saved and goodput.share(saved) >= HARDLY:
        return []
    share, every = f"{goodput.share(best):.1%}", _short(best * goodput.step)
    line = f"goodput: at best {share} with --save_steps {best} (every {every})"
    if saved:
        own, often = f"{goodput.share(saved):.1%}", _short(saved * goodput.step)
        line = f"goodput: {own} with --save_steps {saved} (every {often}), at best {share} with {best} (every {every})"
    return [
        line,
        f"      {_two_digits(goodput.per_day):g} interruptions a day on {job.layout.processes:,} cards, restart "
        f"{_short(goodput.restart_seconds)}, checkpoint {_short(goodput.stall)} (docs/plan.md)",
    ]


def _short(seconds: float) -> str:
    return _without_zeros(duration(_two_digits(seconds, _unit_of(seconds))))


def speed_of(plan: TimePlan) -> str:
    """Return tokens a second of all ranks: 19,013; without published runs the range 14,000–24,000."""
    ends = [_two_digits(share * plan.tokens_per_second) for share in plan.shares]
    return _estimated(plan, ends, plan.tokens_per_second, "{:,.0f}".format)


def mfu_of(plan: TimePlan) -> str:
    """Return the MFU, such as 49%, or 36–61%."""
    return _estimated(plan, [_two_digits(share * plan.mfu) for share in plan.shares], plan.mfu, "{:.0%}".format)


def duration_of(plan: TimePlan, seconds: float) -> str:
    """Return the duration of `seconds` by the plan: 25 minutes, or 20–34 minutes."""
    ends = [_two_digits(seconds / share, _unit_of(seconds / share)) for share in reversed(plan.shares)]
    return _estimated(plan, ends, seconds, duration)


def _estimated(plan: TimePlan, ends: list[float], value: float, text: Callable[[float], str]) -> str:
    """Return the value where there are published runs, else its range, with the unit once where both ends share it."""
    if plan.calibrated:
        return text(value)
    low, high = (_without_zeros(text(end)) for end in ends)
    unit = high.lstrip("0123456789.,")
    return high if low == high else f"{low.removesuffix(unit)}–{high}"


def _two_digits(value: float, unit: float = 1.0) -> float:
    """Return the value rounded to two digits in its unit."""
    return float(f"{value / unit:.1e}") * unit


def _without_zeros(text: str) -> str:
    """Return 35 s for 35.00 s: only two digits are known."""
    return re.sub(r"\.(\d*?)0+(?!\d)", lambda found: f".{found[1]}" if found[1] else "", text)


def _parts(plan: TimePlan) -> str:
    """Return the parts of a step, such as "matrix products 55 %, recompute 19 %, ..., other 3 %"."""
    longest = sorted((plan.parts or plan.sampling).items(), key=lambda part: -part[1])
    shown = [f"{name} {seconds / plan.step_seconds:.0%}" for name, seconds in longest[:SHOWN]]
    rest = sum(seconds for _, seconds in longest[SHOWN:])
    return ", ".join([*shown, *([f"other {rest / plan.step_seconds:.0%}"] if rest else [])])


def _unit_of(seconds: float) -> int:
    """Return the seconds of a duration's unit: a duration has two of them at least."""
    return next((unit for unit in (DAY, HOUR, MINUTE) if seconds >= 2 * unit), 1)


def duration(seconds: float) -> str:
    """Return a duration such as 0.90 s, 25 minutes, 7.5 hours, 50 days."""
    unit = _unit_of(seconds)
    if unit == 1:
        return f"{seconds:.2f} s"
    if unit == MINUTE:
        return f"{seconds / MINUTE:.0f} minutes"
    if unit == HOUR:
        return f"{seconds / HOUR:.1f} hours"
    return f"{seconds / DAY:.1f} days" if seconds < 20 * DAY else f"{seconds / DAY:.0f} days"


@dataclass(frozen=True)
class ThisRun:
    """The run that this process is a rank of, planned.

    Attributes:
        card: None for a CPU and for a kind that is not in the catalogue.
    """

    run: RunConfig
    card: Card | None
    job: Job
    plan: MemoryPlan

    @property
    def lines(self) -> list[str]:
        """The plan's table."""
        return memory_lines(self.job, self.plan)


def this_run(argv: list[str] = sys.argv, environment: Mapping[str, str] = os.environ) -> ThisRun | None:
    """Return the plan of this process's run; None for other programs, and where model or layout cannot be planned.

    One error is enough.
    """
    script, *words = argv
    if words and script.endswith("launch/train.py"):
        script, *words = words
    if find_method(script) is None:
        return None
    try:
        run, _, _ = RunConfig.of_rank(script, words, environment)
        card = None if run.on_cpu else _card_here()
        job = Job.from_run(run, card)
    except UserError:
        return None
    return ThisRun(run, card, job, plan_memory(job, card))


def _card_here() -> Card | None:
    """Return the kind of this machine's first card; None without one."""
    return next(map(kind_of, list_cards()), None)
