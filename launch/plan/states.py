"""What a rank keeps between two steps, and what becomes of a gradient when it arrives, by the stage of sharding."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from launch.methods.preference_flags import SECOND_COPY
from launch.plan.job import Job
from launch.plan.shards import (
    ADAPTER,
    CPU_ALIGNMENT,
    CPU_SEGMENT_SIZE,
    GPU_ALIGNMENT,
    SEGMENT_SIZE,
    Buffers,
    PlannedTensor,
    deal,
    gradient_buffers,
    padded,
    sliced,
    tensors_of,
)
from launch.tape.autograd import Leaf, Memory, Storage

# Parts of a device's memory that are the model's own weights.
WEIGHTS: tuple[str, ...] = ("parameters", "quantized base", "adapter")
REFERENCE = "reference"  # a second copy of the model, or a teacher
MASTER = 4  # bytes of the float32 copy of a half-precision weight


@dataclass(frozen=True)
class States:
    """The states of a rank.

    Attributes:
        parts: Bytes on the device by part.
        host: Bytes in host memory.
        mine: Names of tensors whose gradients have their place on the device.
        buffers: Of stage 2.
        slices: Elements of a rank's part of each sliced tensor, of stage 3.
        updates: Bytes that come from host memory to update a tensor, of each in turn.
    """

    parts: dict[str, int]
    mine: frozenset[str]
    buffers: Buffers | None = None
    slices: dict[str, int] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)
    updates: tuple[int, ...] = ()


def states_of(job: Job, stage: int = 0) -> tuple[States, ...]:
    """Return the states of each rank of a sharding group of this pipeline stage.

    A reference of its own is whole on each.
    """
    return _states_of(job.between_steps, stage)


@lru_cache(maxsize=16)
def _states_of(job: Job, stage: int) -> tuple[States, ...]:
    """Return the states. Cached: a fit asks for the same ones many times."""
    tensors = tensors_of(job, stage)
    found = _of_policy(job, tensors)
    if job.reference == SECOND_COPY:
        for states in found:
            states.parts[REFERENCE] = sum(tensor.nbytes for tensor in tensors_of(job.compared, stage))
    return found


def _of_policy(job: Job, tensors: Sequence[PlannedTensor]) -> tuple[States, ...]:
    if job.layout.sharding == "stage2":
        return _stage2(job, tensors)
    if job.layout.sharding == "stage3":
        return (_stage3(job, tensors),) * job.layout.sharding_parallel_degree
    return _stage1(job, tensors)


def _stage1(job: Job, tensors: Sequence[PlannedTensor]) -> tuple[States, ...]:
    """Return the states of stage 1: all gradients, and the optimizer's dealt to ranks; of one rank all."""
    # Frozen tensors are dealt, too; quantized ones are no parameters.
    dealt = [tensor for tensor in tensors if not (tensor.base or tensor.on_host)]
    owners = deal([tensor.size for tensor in dealt], job.layout.sharding_parallel_degree, largest_first=True)
    optimized, moments = ([0] * job.layout.sharding_parallel_degree for _ in range(2))
    for tensor, owner in zip(dealt, owners, strict=True):
        optimized[owner] += tensor.size if tensor.trained else 0
        moments[owner] += job.moments_of(tensor.shape) if tensor.trained else 0
    names = frozenset(tensor.name for tensor in tensors if tensor.trained)
    gradients = 0 if job.in_backward else sum(optimized) * job.gradient_item
    kept = _bytes_by_part(tensors) | {"gradients": gradients}
    # The buckets of paddle.DataParallel are beside the gradients, not their own place, where its reducer looks for
    # unused parameters: the Trainer requests that unless a model is recomputed (paddlenlp, _wrap_model).
    reducer_copies = not (job.recompute and job.trains_all)
    if job.layout.processes == job.layout.data_parallel_degree > 1 and reducer_copies:
        kept["communication"] = gradients
    found = []
    for elements, of_moments in zip(optimized, moments, strict=True):
        here, there = _optimizer(job, elements, of_moments)
        found.append(States(kept | here, names, host=there))
    return tuple(found)


def _stage2(job: Job, tensors: Sequence[PlannedTensor]) -> tuple[States, ...]:
    """Return the states of stage 2: all parameters, in padded buffers; gradients and optimizer of a rank's own.

    Offload moves the gradients away that are in no buffer (launch/offload/group_sharded.py).
    """
    ranks, item, alignment = job.layout.sharding_parallel_degree, job.item, alignment_of(job)
    owners = deal([tensor.size if tensor.trained else 0 for tensor in tensors], ranks, largest_first=False)
    pairs = [(tensor, owner) for tensor, owner in zip(tensors, owners, strict=True) if tensor.trained]
    trained = [tensor for tensor, _ in pairs]
    buffers = gradient_buffers(trained, [owner for _, owner in pairs], ranks, item, alignment)
    weights = _bytes_by_part(tensors)
    weights["parameters"] += sum(padded(tensor.size, item, alignment) - tensor.size for tensor in trained) * item
    found = []
    for shard in range(ranks):
        mine, within = [tensor for tensor, owner in pairs if owner == shard], set(buffers.members[shard])
        here, there = _optimizer(job, sum(tensor.size for tensor in mine))
        parts = weights | here | {"gradients": buffers.size * job.gradient_item}
        places = there if job.offload.gradients else parts
        alone = sum(tensor.size for tensor in mine if tensor.name not in within)
        places["gradients"] = places.get("gradients", 0) + alone * job.gradient_item
        placed = within if job.offload.gradients else (tensor.name for tensor in mine)
        each = _state_bytes(job)
        updates = [tensor.size * (each + (0 if tensor.name in within else item)) for tensor in mine]
        if buffers.last_owner not in (None, shard):
            # The last of a backward pass is not let go before the next step.
            parts["communication"] = buffers.size * job.gradient_item
        found.append(States(parts, frozenset(placed), buffers, host=there, updates=_streamed(job, updates)))
    return tuple(found)


def _stage3(job: Job, tensors: Sequence[PlannedTensor]) -> States:
    """Return the states of stage 3: a slice of each large tensor, small and quantized ones whole.

    Frozen tensors are sliced, too (launch/upstream/stage3_frozen_parameters.py); quantized ones are no parameters.
    Offload moves the slices away, and their gradients and states.
    """
    ranks, item, alignment = job.layout.sharding_parallel_degree, job.item, alignment_of(job)
    segment = SEGMENT_SIZE if job.on_gpu else CPU_SEGMENT_SIZE
    large = [tensor for tensor in tensors if tensor.size > segment and not tensor.base]
    slices = {tensor.name: sliced(tensor.size, ranks, item, alignment) for tensor in large}
    whole = [tensor for tensor in tensors if tensor.name not in slices]
    parts, there = _bytes_by_part(whole), dict.fromkeys(WEIGHTS, 0)
    for tensor in large:
        (there if job.offload.parameters else parts)[_part_of(tensor)] += slices[tensor.name] * item
    small = [tensor for tensor in whole if tensor.trained]
    parts["gradients"] = sum(padded(tensor.size, item, alignment) for tensor in small) * job.gradient_item
    if job.offload.gradients:
        there["gradients"] = sum(slices[tensor.name] for tensor in large if tensor.trained) * job.gradient_item
    trained = [tensor for tensor in tensors if tensor.trained]
    here, optimizer = _optimizer(job, sum(slices.get(tensor.name, tensor.size) for tensor in trained))
    updates = [
        slices[tensor.name] * (_state_bytes(job) + 2 * item)
        if tensor.name in slices
        else tensor.size * _state_bytes(job)
        for tensor in trained
    ]
    return States(
        parts | here,
        frozenset(tensor.name for tensor in small),
        slices=slices,
        host=there | optimizer,
        updates=_streamed(job, updates),
    )


def alignment_of(job: Job) -> int:
    """Return the alignment of buffers, in bytes."""
    return GPU_ALIGNMENT if job.on_gpu else CPU_ALIGNMENT


def _part_of(tensor: PlannedTensor) -> str:
    if tensor.base:
        return "quantized base"
    return "adapter" if tensor.kind == ADAPTER else "parameters"


def _bytes_by_part(tensors: Sequence[PlannedTensor]) -> dict[str, int]:
    parts = dict.fromkeys(WEIGHTS, 0)
    for tensor in tensors:
        parts[_part_of(tensor)] += tensor.nbytes
    return parts


def _optimizer(job: Job, elements: int, moments: int = 0) -> tuple[dict[str, int], dict[str, int]]:
    """Return the bytes of the optimizer's states for `elements` elements, on the device and in host memory.

    moments: Those of the moments, where they are known.
    """
    states = {
        "master weights": elements * MASTER if job.master_weights else 0,
        "moments": moments or elements * job.moment_bytes,
    }
    return ({}, states) if job.offload.optimizer else (states, {})


def _state_bytes(job: Job) -> int:
    return job.moment_bytes + (MASTER if job.master_weights else 0)


def _streamed(job: Job, updates: list[int]) -> tuple[int, ...]:
    return tuple(updates) if job.offload.gradients else ()


PART = "gradients"


class KeptGradients:
    """One process, data parallel and stage 1: every gradient has its place all the time."""

    def begin(self) -> None:
        """Begin a forward pass."""

    def watch(self, leaf: Leaf) -> None:
        """Place the gradient of a leaf."""
        leaf.gradient = True

    def kept(self) -> list[Storage]:
        """Return the storages that remain between passes."""
        return []


class UsedAtOnce:
    """Gradients of parameters that are updated within the backward pass, and what an update takes beside them."""

    def __init__(self, job: Job, memory: Memory):
        self.job, self.memory = job, memory

    def begin(self) -> None:
        """Begin a forward pass."""

    def watch(self, leaf: Leaf) -> None:
        """Let the gradient of a leaf go as soon as it has been used."""
        leaf.kept_as = PART
        leaf.arrived = self._update

    def _update(self, leaf: Leaf) -> None:
        self.memory.take(self.job.update_bytes(leaf.shape), "moments")
        leaf.gradient = None

    def kept(self) -> list[Storage]:
        """Return the storages that remain between passes."""
        return []


class BufferedGradients:
    """The gradients of stage 2.

    The smaller tensors of other ranks have a buffer for each rank, from the beginning of the forward pass until all of
    them have arrived; a larger one is given away as soon as it is there.
    """

    def __init__(self, memory: Memory, states: States, shard: int, item: int):
        self.memory, self.states, self.item = memory, states, item
        assert states.buffers is not None, "stage 2 has them"
        self.buffers = states.buffers
        self.owner = {name: rank for rank, names in self.buffers.members.items() for name in names if rank != shard}
        self.open: dict[int, Storage] = {}
        self.missing: dict[int, int] = {}

    def begin(self) -> None:
        """Begin a forward pass: take the buffers."""
        for rank in set(self.owner.values()):
            buffer = self.memory.take(self.buffers.size * self.item, PART)
            self.memory.alive(self.open.get(rank))
            self.open[rank] = buffer
            self.missing[rank] = len(self.buffers.members[rank])

    def watch(self, leaf: Leaf) -> None:
        """Place the gradient of a leaf."""
        if leaf.name in self.states.mine:
            leaf.gradient = True
        elif leaf.name in self.owner:
            leaf.gradient = leaf.awaited = True
            leaf.arrived = self._count
        else:
            leaf.kept_as = PART
            leaf.arrived = _give_away

    def _count(self, leaf: Leaf) -> None:
        rank = self.owner[leaf.name]
        self.missing[rank] -= 1
        if self.missing[rank] == 0:
            self.memory.alive(self.open.pop(rank))

    def kept(self) -> list[Storage]:
        """Return the storages that remain between passes."""
        return list(self.open.values())


class SlicedGradients:
    """The gradients of stage 3.

    A sliced tensor's gradient is summed whole, then a rank keeps its slice until the optimizer's step, in host memory
    where gradients are offloaded.
    """

    def __init__(self, memory: Memory, states: States, item: int, offloaded: bool):
        self.memory, self.states, self.item, self.offloaded = memory, states, item, offloaded
        self.slices: dict[str, Storage] = {}

    def begin(self) -> None:
        """Begin a forward pass."""
        pass

    def watch(self, leaf: Leaf) -> None:
        """Place the gradient of a leaf."""
        if leaf.name in self.states.slices:
            leaf.arrived = self._slice
            leaf.gathered = leaf.size * self.item
        leaf.gradient = True

    def _slice(self, leaf: Leaf) -> None:
        part = self.memory.take(self.states.slices[leaf.name] * self.item, PART)
        if not self.offloaded:
            self.memory.alive(self.slices.get(leaf.name))
            self.slices[leaf.name] = part

    def kept(self) -> list[Storage]:
        """Return the storages that remain between passes."""
        return list(self.slices.values())


def _give_away(leaf: Leaf) -> None:
    leaf.gradient = None


def gradients_of(job: Job, memory: Memory, states: States, shard: int):
    """Return the gradients of a job's sharding."""
    if job.in_backward:
        return UsedAtOnce(job, memory)
    if job.layout.sharding == "stage2":
        return BufferedGradients(memory, states, shard, job.gradient_item)
    if job.layout.sharding == "stage3":
        return SlicedGradients(memory, states, job.gradient_item, job.offload.gradients)
    return KeptGradients()
