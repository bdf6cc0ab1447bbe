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
from launch.plan.memory_plan import WEIGHTS

# Bytes a parameter.
MOMENTS = 8  # AdamW's two, in float32 in every precision
MASTER = 4  # the float32 copy of a half-precision weight


@dataclass(frozen=True)
class States:
    """parts: bytes on the device by part. host: those in host memory. mine: names of tensors whose gradients have their
    place on the device. buffers: of stage 2. slices: numbers of a rank's part of each sliced tensor, of stage 3.
    updates: bytes that come from host memory to update a tensor, of each in turn."""

    parts: dict[str, int]
    mine: frozenset[str]
    buffers: Buffers | None = None
    slices: dict[str, int] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)
    updates: tuple[int, ...] = ()


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
        dealt = [one for one in tensors if not one.base]  # frozen tensors, too; quantized ones are no parameters
        owners = deal([one.size for one in dealt], job.layout.sharding_parallel_degree, largest_first=True)
        pairs = zip(dealt, owners, strict=True)
        optimized = sum(one.size for one, owner in pairs if owner == shard and one.trained)
    here, there = _optimizer(job, optimized)
    parts = _bytes_held(tensors) | here | {"gradients": gradients * job.gradient_item}
    if job.layout.processes == job.layout.data_parallel_degree > 1 and _reducer_copies(job):
        parts["communication"] = gradients * job.gradient_item
    return States(parts, names, host=there)


def _reducer_copies(job: Job) -> bool:
    """Whether the buckets of paddle.DataParallel are beside the gradients, not their own place: where the reducer looks
    for unused parameters, which the Trainer asks of it unless a model is recomputed (paddlenlp, _wrap_model)."""
    return not (job.recompute and job.trains_all)


def _stage2(job: Job, tensors: list[Held], shard: int) -> States:
    """All parameters, in padded buffers; gradients and optimizer of this rank's own. Offload moves those gradients away
    that are in no buffer (launch/offload/group_sharded.py)."""
    ranks, item, alignment = job.layout.sharding_parallel_degree, job.item, alignment_of(job)
    owners = deal([one.size if one.trained else 0 for one in tensors], ranks, largest_first=False)
    trained = [(one, owner) for one, owner in zip(tensors, owners, strict=True) if one.trained]
    mine = [one for one, owner in trained if owner == shard]
    buffers = gradient_buffers(*zip(*trained, strict=True), ranks, item, alignment)
    apart = [one for one in mine if one.name not in buffers.members[shard]]
    here, there = _optimizer(job, sum(one.size for one in mine))
    parts = _bytes_held(tensors) | here | {"gradients": buffers.size * job.gradient_item}
    places = there if job.offload.gradients else parts
    places["gradients"] = places.get("gradients", 0) + sum(one.size for one in apart) * job.gradient_item
    placed = [one.name for one in mine if not (job.offload.gradients and one in apart)]
    updates = [one.size * (_state_bytes(job) + (item if one in apart else 0)) for one in mine]
    if buffers.last_owner not in (None, shard):
        # The last of a backward pass is not let go before the next step.
        parts["communication"] = buffers.size * job.gradient_item
    padding = sum(padded(one.size, item, alignment) - one.size for one, _ in trained) * item
    parts["parameters"] += padding
    return States(parts, frozenset(placed), buffers, host=there, updates=_streamed(job, updates))


def _stage3(job: Job, tensors: list[Held]) -> States:
    """A slice of each large tensor, frozen ones too (launch/upstream/stage3_frozen_parameters.py); the small ones, and
    quantized ones, which are no parameters, whole. Offload moves the slices away and what belongs to them."""
    ranks, item, alignment = job.layout.sharding_parallel_degree, job.item, alignment_of(job)
    segment = SEGMENT_SIZE if job.on_gpu else CPU_SEGMENT_SIZE
    large = [one for one in tensors if one.size > segment and not one.base]
    slices = {one.name: sliced(one.size, ranks, item, alignment) for one in large}
    whole = [one for one in tensors if one.name not in slices]
    parts, there = _bytes_held(whole), dict.fromkeys(WEIGHTS, 0)
    for one in large:
        (there if job.offload.parameters else parts)[_part_of(one)] += slices[one.name] * item
    small = [one for one in whole if one.trained]
    parts["gradients"] = sum(padded(one.size, item, alignment) for one in small) * job.gradient_item
    if job.offload.gradients:
        there["gradients"] = sum(slices[one.name] for one in large if one.trained) * job.gradient_item
    trained = [one for one in tensors if one.trained]
    here, optimizer = _optimizer(job, sum(slices.get(one.name, one.size) for one in trained))
    updates = [
        slices[one.name] * (_state_bytes(job) + 2 * item) if one.name in slices else one.size * _state_bytes(job)
        for one in trained
    ]
    return States(
        parts | here,
        frozenset(one.name for one in small),
        slices=slices,
        host=there | optimizer,
        updates=_streamed(job, updates),
    )


def alignment_of(job: Job) -> int:
    return GPU_ALIGNMENT if job.on_gpu else CPU_ALIGNMENT


def _part_of(one: Held) -> str:
    if one.base:
        return "quantized base"
    return "adapter" if one.kind == ADAPTER else "parameters"


def _bytes_held(tensors: list[Held]) -> dict[str, int]:
    held = dict.fromkeys(WEIGHTS, 0)
    for one in tensors:
        held[_part_of(one)] += one.nbytes
    return held


def _optimizer(job: Job, numbers: int) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of its states for so many numbers, on the device and in host memory."""
    states = {"master weights": numbers * MASTER if job.master_weights else 0, "moments": numbers * MOMENTS}
    return ({}, states) if job.offload.optimizer else (states, {})


def _state_bytes(job: Job) -> int:
    return MOMENTS + (MASTER if job.master_weights else 0)


def _streamed(job: Job, updates: list[int]) -> tuple[int, ...]:
    return tuple(updates) if job.offload.gradients else ()
