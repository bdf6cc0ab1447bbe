"""A memory plan as a table of 80 columns, and as JSON."""

from data_tools.language import localized
from data_tools.terminal import columns
from launch.families.arithmetic import ModelShape
from launch.families.parameters import layers
from launch.plan.hardware import GIB
from launch.plan.job import FLOAT32, Job, Lora, Prefix
from launch.plan.memory.rules import rules
from launch.plan.memory_plan import PARTS, MemoryPlan

NAME, COLUMN = 17, 9
STAGES_IN_WIDTH = 7


def memory_lines(job: Job, plan: MemoryPlan) -> list[str]:
    """The job in two lines, the parts of each pipeline stage at its peak, the verdict, the host, the disk."""
    return [*describe(job), "", *_table(plan), "", verdict(plan), *rules(job, plan), *_node(plan)]


def describe(job: Job) -> list[str]:
    """What is planned."""
    billions = ModelShape.from_config(job.config).parameters / 1e9
    tokens = job.micro_batch * job.sequence_length
    return [
        f"{job.family.title}, {billions:.2f} billion parameters, {layers(job.config)} layers; {method(job)}",
        f"{job.layout}{_beside_the_layout(job)}; micro batch {job.micro_batch} x "
        f"{job.sequence_length} = {tokens:,} tokens",
        ", ".join(_how(job)),
    ]


def _beside_the_layout(job: Job) -> str:
    """, sequence parallel, offload"""
    offload = ", optimizer in host memory between steps" if job.offload.returns else ", offload"
    return (", sequence parallel" if job.sequence_parallel else "") + (offload if job.offload.optimizer else "")


def method(job: Job) -> str:
    """What is trained."""
    if isinstance(job.adapter, Lora):
        return f"LoRA, rank {job.adapter.rank}" + (f", on a {job.base.bits}-bit base" if job.base else "")
    if isinstance(job.adapter, Prefix):
        return f"a prefix of {job.adapter.tokens} tokens"
    return "all parameters are trained"


def _how(job: Job) -> list[str]:
    how = [job.compute if job.compute != FLOAT32 else f"float32{f' ({job.amp})' if job.amp else ''}"]
    how.append("flash attention" if job.flash_attention else "exact attention")
    how.append("fused RMSNorm" if job.fused_rms_norm else "own RMSNorm")
    how.append(f"recompute {job.recompute}" if job.recompute else "no recompute")
    return how


def _table(plan: MemoryPlan) -> list[str]:
    """A column a stage; of more than fit, those with the highest peaks."""
    stages = sorted(plan.stages, key=lambda one: -one.peak.total_bytes)[:STAGES_IN_WIDTH]
    stages = sorted(stages, key=lambda one: one.stage)
    lines = [
        _row("GiB on a card", [f"stage {one.stage}" for one in stages]),
        _row("layers", [f"{one.layers[0]}-{one.layers[1]}" for one in stages]),
        _row("peak phase", [one.peak.name.split()[0] for one in stages]),
    ]
    for part in PARTS:
        sizes = [one.peak.parts.get(part, 0) for one in stages]
        if any(sizes):
            lines.append(_row(part, [f"{size / GIB:.2f}" for size in sizes]))
    return [*lines, _row("together", [f"{one.peak.total_bytes / GIB:.2f}" for one in stages])]


def _row(name: str, cells: list[str]) -> str:
    name = localized(name)
    return name + " " * (NAME - columns(name)) + "".join(f"{cell:>{COLUMN}}" for cell in cells)


def verdict(plan: MemoryPlan) -> str:
    """Whether it fits, in one line."""
    stage = f", stage {plan.worst.stage}" if len(plan.stages) > 1 else ""
    needed = f"{plan.peak_bytes / GIB:.1f} GiB at the peak ({plan.worst.peak.name}{stage})"
    if plan.fits is None:
        return f"{needed}; no card is named"
    kind = f"{plan.card.name}: {plan.card.memory_bytes / GIB:.1f} GiB"
    trust = "" if plan.calibrated else "; uncalibrated (docs/plan.md)"
    return f"fits: {needed}, {kind}{trust}" if plan.fits else f"DOES NOT FIT: {needed}, {kind}{trust}"


def _node(plan: MemoryPlan) -> list[str]:
    host = ", ".join(f"{part} {size / GIB:.1f}" for part, size in plan.host.items())
    disk = ", ".join(f"{part} {size / 1e9:,.1f} GB" for part, size in plan.disk.items())
    return [f"host memory of a rank: {sum(plan.host.values()) / GIB:.1f} GiB ({host})", f"disk: {disk}"]


def as_json(job: Job, plan: MemoryPlan) -> dict:
    """The same as data; the keys are documented in docs/plan.md. Bytes throughout."""
    return {
        "model": {"family": job.family.name, "parameters": ModelShape.from_config(job.config).parameters},
        "layout": str(job.layout),
        "card": plan.card.name if plan.card else None,
        "card_memory_bytes": plan.card.memory_bytes if plan.card else None,
        "calibrated": plan.calibrated,
        "fits": plan.fits,
        "peak_bytes": plan.peak_bytes,
        "stages": [
            {
                "stage": one.stage,
                "layers": list(one.layers),
                "peak_phase": one.peak.name,
                "peak_bytes": one.peak.total_bytes,
                "allocated_bytes": one.peak.allocated_bytes,
                "phases": {phase.name: phase.parts for phase in one.phases},
            }
            for one in plan.stages
        ],
        "host_bytes": plan.host,
        "disk_bytes": plan.disk,
    }
