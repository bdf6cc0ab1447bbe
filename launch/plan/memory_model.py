"""The memory of a run: what each device has at the peak of each phase, and what a node needs beside its cards.

Each constant has one reason and counts for every job alike; none belongs to one published row. docs/plan.md says how
good the estimates are.
"""

from dataclasses import dataclass, field
from math import prod

from launch.config.layout import Layout
from launch.families.parameters import head_size, key_value_heads, layers, with_layers
from launch.methods.reinforcement import SPARE_TEXTS
from launch.plan.hardware import GIB, Card
from launch.plan.job import FLOAT32, ITEM, Job
from launch.plan.shards import ADAPTER, stage_layers, tensors_of
from launch.plan.states import MASTER, REFERENCE, WEIGHTS, states_of
from launch.plan.step import Place, replay

# The parts of a device's memory, in the order in which they are shown, the model's own weights first.
PARTS = (
    *WEIGHTS,
    REFERENCE,
    "gradients",
    "master weights",
    "moments",
    "attention",
    "MLP",
    "norms",
    "residuals",
    "embedding",
    "logits and loss",
    "keys and values",
    "communication",
    "allocator slack",
    "CUDA context",
    "NCCL",
)
# A rough estimate beyond this share of the room is not refined.
FAR = 1.1
# A run that leaves a smaller share of its card free is tight: other programs and fragments may take as much.
TIGHT = 0.04
# What Paddle's allocator does not count, but nvidia-smi does.
OUTSIDE = ("CUDA context", "NCCL")


@dataclass(frozen=True)
class Phase:
    """A moment of a step at which memory is at a peak.

    Attributes:
        parts: Bytes by name, of PARTS.
    """

    name: str
    parts: dict[str, int]

    @property
    def allocated_bytes(self) -> int:
        """Bytes of tensors: what Paddle's max_memory_allocated shows."""
        return sum(size for part, size in self.parts.items() if part not in OUTSIDE)

    @property
    def total_bytes(self) -> int:
        """All that is taken of the card: what nvidia-smi shows."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class StagePlan:
    """One pipeline stage: its rank that needs the most.

    Attributes:
        layers: (first, last) transformer layer.
    """

    stage: int
    layers: tuple[int, int]
    phases: tuple[Phase, ...]

    @property
    def peak(self) -> Phase:
        """The phase that needs the most: memory is not the sum of the phases."""
        return max(self.phases, key=lambda phase: phase.total_bytes)


@dataclass(frozen=True)
class MemoryPlan:
    """The memory that a run needs.

    Attributes:
        card: None for a CPU or an unknown card.
        host, disk: Bytes of a node by part.
    """

    card: Card | None
    stages: tuple[StagePlan, ...]
    host: dict[str, int] = field(default_factory=dict)
    disk: dict[str, int] = field(default_factory=dict)
    calibrated: bool = False

    @property
    def worst(self) -> StagePlan:
        """The stage whose peak is the highest."""
        return max(self.stages, key=lambda stage: stage.peak.total_bytes)

    @property
    def peak_bytes(self) -> int:
        """Bytes at the peak of the fullest card."""
        return self.worst.peak.total_bytes

    @property
    def fits(self) -> bool | None:
        """Whether every stage fits on the card; None where no card is named."""
        return None if self.card is None else self.peak_bytes <= self.card.memory_bytes

    @property
    def tight(self) -> bool:
        """Whether hardly anything of the card stays free."""
        return (
            self.card is not None and (1 - TIGHT) * self.card.memory_bytes < self.peak_bytes <= self.card.memory_bytes
        )


def plan_memory(job: Job, card: Card | None = None) -> MemoryPlan:
    """Return the memory that the job needs on each device.

    card: None where it is unknown; a CPU's counts tensors alone.
    """
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
    if job.sampled_at_once:
        peaks = peaks | {"sampling": _sampling(job, stage)}
    phases = []
    for name, parts in peaks.items():
        all_parts = parts | beside
        phases.append(Phase(name, {part: all_parts[part] for part in PARTS if all_parts.get(part)}))
    return StagePlan(stage, (mine.start, mine.stop - 1), tuple(phases))


def _sampling(job: Job, stage: int) -> dict[str, int]:
    """Return the bytes by part while reinforcement samples answers, before a step (launch/generation/sampler.py)."""
    kept = states_of(job, stage)[heaviest_shard(job, stage)].parts
    token = 2 * layers(job.config) * key_value_heads(job.config) * head_size(job.config) * job.item
    logits = job.sampled_at_once * job.config["vocab_size"] * (job.item + ITEM[FLOAT32])
    texts = (job.sampled_at_once + SPARE_TEXTS) * job.sequence_length
    return dict(kept) | {"keys and values": texts * token, "logits and loss": logits}


def least_bytes(job: Job) -> int:
    """Return the bytes of the fullest device between two steps.

    They are less than any peak, and known without replaying a step.
    """
    beside = workspace(job) + sum(outside_allocator(job).values())
    stages = range(job.layout.pipeline_parallel_degree)
    return max(max(_kept_by_shard(job, stage)) for stage in stages) + beside


def bytes_if_far(job: Job, room: float) -> int:
    """Return about the bytes that a job takes of a device if that exceeds the room by far, else 0.

    It takes a fraction of a plan's work.
    """
    if (least := least_bytes(job)) > room:
        return least
    return int(rough) if (rough := _rough_bytes(job)) > FAR * room else 0


def _rough_bytes(job: Job) -> float:
    """Return the bytes at the peak, from models of 2 and 4 layers a stage: it grows by as much with each layer.

    It is within 0.1 %, but where sharding deals whole tensors: the few layers' are dealt less evenly, up to 7 % more a
    rank.
    """
    stages = job.layout.pipeline_parallel_degree
    shallow = (job.changed(config=with_layers(job.config, count * stages)) for count in (2, 4))
    few, more = (plan_memory(each).peak_bytes for each in shallow)
    return few + (more - few) * (layers(job.config) / stages - 2) / 2


def heaviest_shard(job: Job, stage: int) -> int:
    """Return the rank of a sharding group that keeps the most: whole tensors are not dealt evenly."""
    kept = _kept_by_shard(job, stage)
    return kept.index(max(kept))


def _kept_by_shard(job: Job, stage: int) -> list[int]:
    """Return bytes on the device between two steps, of each rank of a sharding group."""
    return [sum(states.parts.values()) for states in states_of(job, stage)]


# Paddle's allocator counts kernels' own buffers and rounds up: what the published max_memory_allocated of PaddleNLP
# (llm/docs/pretrain.rst, 2023-11) and the stages' differences of FlagPerf have beyond the tensors. Fitted.
WORKSPACE = 2.2 * GIB
# A process of Paddle with all its kernels, cuBLAS and cuDNN loaded, before its first tensor. Fitted, together with
# the next, to what nvidia-smi shows beyond the allocator: 2 to 3 GB in all, as PaddleNLP's tables say.
CUDA_CONTEXT = 1.5 * GIB
# Each communicator of NCCL keeps buffers for its channels and peers (NCCL documentation, NCCL_BUFFSIZE).
NCCL_COMMUNICATOR = 0.5 * GIB


def workspace(job: Job) -> int:
    """Return the bytes that Paddle's own count has beside the tensors; 0 on a CPU."""
    return int(WORKSPACE) if job.on_gpu else 0


def outside_allocator(job: Job) -> dict[str, int]:
    """Return the bytes by part that nvidia-smi shows and Paddle does not count; none on a CPU."""
    if not job.on_gpu:
        return {}
    found = {"CUDA context": int(CUDA_CONTEXT), "NCCL": int(NCCL_COMMUNICATOR * communicators(job))}
    return {part: size for part, size in found.items() if size}


def communicators(job: Job) -> int:
    """Return the number of this rank's groups: one of all ranks, and one for each smaller kind of parallelism.

    One more has the ranks that share a sample.
    """
    layout = job.layout
    degrees = (
        layout.data_parallel_degree,
        layout.sharding_parallel_degree,
        layout.tensor_parallel_degree,
        layout.pipeline_parallel_degree,
    )
    used = [degree for degree in degrees if degree > 1]
    return len(used) + (len(used) > 1) + (layout.sep_parallel_degree > 1)


# A process that has imported Paddle and PaddleNLP, measured: 1.1 GB resident; a data worker is a fork of it that shares
# most pages.
PROCESS, WORKER = 1_100_000_000, 300_000_000
OF_OPTIMIZER = ("master weights", "moments")


def host_bytes(job: Job) -> dict[str, int]:
    """Return the bytes of host memory of one rank, by part."""
    stages = range(job.layout.pipeline_parallel_degree)
    parts = {
        "process": PROCESS,
        "data workers": job.data_workers * WORKER,
        "offload": max(_offloaded(job, stage) for stage in stages),
        "word embedding": sum(one.size * one.item for one in tensors_of(job) if one.on_host),
        "checkpoint": max(_written_at_once(job, stage) for stage in stages),
    }
    return {part: size for part, size in parts.items() if size}


def disk_bytes(job: Job) -> dict[str, int]:
    """Return the bytes on disk of a run: one checkpoint, all that exist at once, the model at the end."""
    alone = job.changed(layout=Layout(1, 1, 1, 1, ""))  # the elements of all ranks
    shapes = [tensor.shape for tensor in tensors_of(alone) if tensor.trained]
    trained, moments = sum(map(prod, shapes)), sum(map(job.moments_of, shapes))
    checkpoint = trained * (job.item + (MASTER if job.master_weights else 0)) + moments
    return {"checkpoint": checkpoint, "kept checkpoints": job.checkpoints * checkpoint, "model": trained * job.item}


def _offloaded(job: Job, stage: int) -> int:
    """Return the page-locked bytes of this stage's rank that has the most in host memory.

    Parameters that are offloaded are read as a whole, then sharded (launch/offload/group_sharded.py), before there are
    activations.
    """
    read = (
        sum(one.nbytes for one in tensors_of(job, stage) if one.kind != ADAPTER and not one.base)
        if job.offload.parameters
        else 0
    )
    states = max(sum(states.host.values()) for states in states_of(job, stage))
    return max(read, states + _activations(job, stage))


def _activations(job: Job, stage: int) -> int:
    """Return the bytes of the inputs of this stage's layers, of each micro batch under way.

    A frozen embedding gives one that has no gradient to hand on: that layer is not recomputed.
    """
    if not job.offload.activations:
        return 0
    layers = len(stage_layers(job)[stage]) - (stage == 0 and not job.trains_all)
    under_way = min(job.layout.pipeline_parallel_degree - stage, job.accumulation)
    return layers * under_way * job.residual_bytes


def _written_at_once(job: Job, stage: int) -> int:
    """Return the bytes of a checkpoint that are copied to the host at once.

    It is a tensor after the other; in the background everything that a rank writes.
    """
    trained = [tensor.size for tensor in tensors_of(job, stage) if tensor.trained]
    if not job.saves_in_background:
        return max(trained, default=0) * job.item
    return sum(trained) * job.item + _most_bytes(job, stage, OF_OPTIMIZER)


def restored_bytes(job: Job) -> int:
    """Return the bytes that a rank reads of a model and a checkpoint when a run continues.

    It is the rank that reads the most.

    They are weights, also frozen ones, and the states of its optimizer.
    """
    return max(_most_bytes(job, stage, WEIGHTS + OF_OPTIMIZER) for stage in range(job.layout.pipeline_parallel_degree))


def _most_bytes(job: Job, stage: int, parts: tuple[str, ...]) -> int:
    """Return the bytes of these parts, on the device and in host memory, of a sharding group's fullest rank."""
    return max(
        sum(size for place in (states.parts, states.host) for part, size in place.items() if part in parts)
        for states in states_of(job, stage)
    )
