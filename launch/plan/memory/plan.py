"""The memory model: from a job to what each device holds, phase by phase."""

from launch.plan.hardware import Card
from launch.plan.job import Job
from launch.plan.memory.division import adapter, held, stage_layers
from launch.plan.memory.host import disk_bytes, host_bytes
from launch.plan.memory.outside import outside_allocator, workspace
from launch.plan.memory.states import states_of
from launch.plan.memory.step import Place, replay
from launch.plan.memory_plan import PARTS, MemoryPlan, Phase, StagePlan


def plan_memory(job: Job, card: Card | None = None) -> MemoryPlan:
    """What the job needs on each device. card: None where it is unknown; a CPU's counts tensors alone."""
    return MemoryPlan(
        card=card,
        stages=tuple(_stage(job, stage) for stage in range(job.layout.pipeline_parallel_degree)),
        host=host_bytes(job),
        disk=disk_bytes(job),
        calibrated=card is not None and card.calibrated,
    )


def _stage(job: Job, stage: int) -> StagePlan:
    peaks = replay(job, Place(stage, heaviest_shard(job, stage)))
    mine = stage_layers(job)[stage]
    beside = {"allocator slack": workspace(job)} | outside_allocator(job)
    phases = tuple(Phase(name, _shown(parts | beside)) for name, parts in peaks.items())
    return StagePlan(stage, (mine.start, mine.stop - 1), phases)


def least_bytes(job: Job) -> int:
    """What the fullest device holds between two steps: less than any peak, and known without replaying a step."""
    beside = workspace(job) + sum(outside_allocator(job).values())
    stages = range(job.layout.pipeline_parallel_degree)
    return max(max(_kept_by_shard(job, stage)) for stage in stages) + beside


def heaviest_shard(job: Job, stage: int) -> int:
    """The rank of a sharding group that keeps the most: whole tensors are not dealt evenly."""
    kept = _kept_by_shard(job, stage)
    return kept.index(max(kept))


def _kept_by_shard(job: Job, stage: int) -> list[int]:
    """Bytes on the device between two steps, of each rank of a sharding group."""
    tensors = held(job, stage) + adapter(job, stage)
    ranks = range(job.layout.sharding_parallel_degree)
    return [sum(states_of(job, tensors, rank).parts.values()) for rank in ranks]


def _shown(parts: dict[str, int]) -> dict[str, int]:
    """In the order of PARTS, without what is nothing."""
    return {part: parts[part] for part in PARTS if parts.get(part)}
