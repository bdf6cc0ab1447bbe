"""What a rank keeps between two steps: parameters, gradients, master weights, moments."""

from dataclasses import dataclass, field

from launch.plan.job import Job
from launch.plan.memory.division import ADAPTER, Held
from launch.plan.memory.sharding import (
    CPU_ALIGNMENT,
    CPU_SEGMENT_SIZE,
    GPU_ALIGNMENT,
    SEGMENT_SIZE,
    Buffers,
    deal,
    gradient_buffers,
    padded,
    sliced,
)

MOMENTS = 8  # bytes a number: AdamW's two, in float32 in every precision
MASTER = 4
OF_THE_OPTIMIZER = ("master weights", "moments")


@dataclass(frozen=True)
class States:
    """parts: bytes by part. mine: names of tensors whose gradients have their place among them. buffers: of stage 2.
    slices: numbers of a rank's part of each sliced tensor, of stage 3."""

    parts: dict[str, int]
    mine: frozenset[str]
    buffers: Buffers | None = None
    slices: dict[str, int] = field(default_factory=dict)

    def on_device(self, job: Job) -> dict[str, int]:
        """The parts that are not in host memory."""
        away = OF_THE_OPTIMIZER if job.offload.optimizer else ()
        return {part: size for part, size in self.parts.items() if part not in away}


def states_of(job: Job, tensors: list[Held], shard: int) -> States:
    """Of the rank with this number in its sharding group."""
    if job.layout.sharding == "stage2":
        return _stage2(job, tensors, shard)
    if job.layout.sharding == "stage3":
        return _stage3(job, tensors)
    trained = [one for one in tensors if one.trained]
    names = frozenset(one.name for one in trained)
    gradients = optimized = sum(one.size for one in trained)
    if job.layout.sharding == "stage1":
        # Frozen tensors are dealt, too, and get gradients of zeros (dygraph_sharding_optimizer.py, reduce_gradients);
        # quantised ones are no parameters.
        dealt = [one for one in tensors if not one.base]
        owners = deal([one.size for one in dealt], job.layout.sharding_parallel_degree, largest_first=True)
        pairs = zip(dealt, owners, strict=True)
        optimized = sum(one.size for one, owner in pairs if owner == shard and one.trained)
        gradients = sum(one.size for one in dealt)
    parts = _bytes_held(tensors) | _optimized(job, gradients, optimized)
    if job.layout.processes == job.layout.data_parallel_degree > 1 and _reducer_copies(job):
        parts["communication"] = gradients * job.item
    return States(parts, names)


def _reducer_copies(job: Job) -> bool:
    """Whether the buckets of paddle.DataParallel are beside the gradients, not their own place: where the reducer looks
    for unused parameters, which the Trainer asks of it unless a model is recomputed (paddlenlp, _wrap_model)."""
    return not (job.recompute and job.trains_all)


def _stage2(job: Job, tensors: list[Held], shard: int) -> States:
    """All parameters, in padded buffers; gradients and optimizer of this rank's own."""
    ranks, item, alignment = job.layout.sharding_parallel_degree, job.item, alignment_of(job)
    owners = deal([one.size if one.trained else 0 for one in tensors], ranks, largest_first=False)
    trained = [(one, owner) for one, owner in zip(tensors, owners, strict=True) if one.trained]
    mine = [one for one, owner in trained if owner == shard]
    buffers = gradient_buffers(*zip(*trained, strict=True), ranks, item, alignment)
    gradients = buffers.size + sum(one.size for one in mine if one.name not in buffers.members[shard])
    parts = _bytes_held(tensors) | _optimized(job, gradients, sum(one.size for one in mine))
    if buffers.last_owner not in (None, shard):
        parts["communication"] = buffers.size * item  # the last of a backward pass is not let go before the next step
    padding = sum(padded(one.size, item, alignment) - one.size for one, _ in trained) * item
    parts["parameters"] += padding
    return States(parts, frozenset(one.name for one in mine), buffers)


def _stage3(job: Job, tensors: list[Held]) -> States:
    """A slice of each large tensor, the small ones whole. Frozen ones stay whole, too: what backward has put together
    upstream cuts again for trained tensors alone (group_sharded_stage3.py, _get_allreduce_fn)."""
    ranks, item, alignment = job.layout.sharding_parallel_degree, job.item, alignment_of(job)
    segment = SEGMENT_SIZE if job.on_gpu else CPU_SEGMENT_SIZE
    large = [one for one in tensors if one.size > segment and one.trained]
    slices = {one.name: sliced(one.size, ranks, item, alignment) for one in large}
    whole = [one for one in tensors if one.name not in slices]
    held = _bytes_held(whole)
    for one in tensors:
        if one.name in slices:
            held[_part_of(one)] += slices[one.name] * one.item
    small = [one for one in whole if one.trained]
    gradients = sum(padded(one.size, item, alignment) for one in small)
    optimized = sum(slices.get(one.name, one.size) for one in tensors if one.trained)
    return States(held | _optimized(job, gradients, optimized), frozenset(one.name for one in small), slices=slices)


def alignment_of(job: Job) -> int:
    return GPU_ALIGNMENT if job.on_gpu else CPU_ALIGNMENT


def _part_of(one: Held) -> str:
    return "adapter" if one.kind == ADAPTER else "parameters"


def _bytes_held(tensors: list[Held]) -> dict[str, int]:
    held = {"parameters": 0, "adapter": 0}
    for one in tensors:
        held[_part_of(one)] += one.nbytes
    return held


def _optimized(job: Job, gradients: int, optimized: int) -> dict[str, int]:
    """Bytes, from numbers."""
    return {
        "gradients": gradients * job.item,
        "master weights": optimized * MASTER if job.master_weights else 0,
        "moments": optimized * MOMENTS,
    }
