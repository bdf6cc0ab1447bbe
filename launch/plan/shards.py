"""Which tensors each rank has: its pipeline stage's, sharded by tensor parallelism, dealt to its sharding group.

Layers are column or row parallel as in paddlenlp 3.0.0b4 (launch/families/parameters.py has the names), and dealt to
stages as by paddle.distributed.fleet's SegmentLayers. Sharding follows paddle 3.3.1, paddle/distributed/fleet: stage 1
deals whole tensors, the largest first, each to the rank that has the least (dygraph_sharding_optimizer.py,
_partition_parameters); stage 2 does so in the model's order and moves the parameters into one padded buffer for each
rank (group_sharded_optimizer_stage2.py); stage 3 slices each tensor above 2**20 elements and leaves the others whole
(group_sharded_stage3.py).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from launch.families.parameters import (
    BIAS,
    CORRECTION,
    HEAD,
    LINEAR,
    NORM,
    POSITION,
    ROUTER,
    SCORE,
    WORD,
    Parameter,
    head_size,
    key_value_heads,
    layers,
)
from launch.families.registry import parameters
from launch.plan.job import Job, Lora, Offload, Prefix
from launch.tape.autograd import FLOAT32
from launch.tape.quantized import Format

COLUMN = {
    "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "query_key_value", "dense_h_to_4h", "linear1", "w1",
    "w3",
}  # fmt: skip
ADAPTER = "adapter"  # a kind of tensor, beside those of launch/families/parameters.py
LAYER = re.compile(r"\.(?:layers|h)\.(\d+)\.")


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor, or a rank's shard of it.

    Attributes:
        sharded: Over the tensor parallel ranks.
        item: Bytes of an element.
        base: How it is quantized.
        on_host: Whether it is in host memory.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    sharded: bool
    trained: bool
    item: int
    base: Format | None = None
    on_host: bool = False

    @cached_property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the elements on the device."""
        if self.on_host:
            return 0
        return self.base.nbytes(*self.shape) if self.base else self.size * self.item


def stage_layers(job: Job) -> list[range]:
    """Return the transformer layers of each pipeline stage.

    Where the stages do not divide the layers, embedding, layers, norm and head are dealt alike ("uniform").
    """
    stages, count = job.layout.pipeline_parallel_degree, layers(job.config)
    if count % stages == 0:
        each = count // stages
        return [range(stage * each, (stage + 1) * each) for stage in range(stages)]
    items = count + 3  # with embedding, norm and head
    part, extra = divmod(items, stages)
    ends = [0]
    for stage in range(1, stages + 1):
        ends.append(ends[-1] + part + (1 if stage > stages - extra else 0))
    return [range(max(first - 1, 0), min(last - 1, count)) for first, last in zip(ends, ends[1:], strict=False)]


def tensors_of(job: Job, stage: int = 0) -> tuple[PlannedTensor, ...]:
    """Return the tensors on a rank of this pipeline stage: the model's own, then the adapter's."""
    layout = replace(job.layout, data_parallel_degree=1, sharding_parallel_degree=1, sharding="", sep_parallel_degree=1)
    return _tensors_of(job.between_steps.changed(layout=layout, offload=Offload()), stage)


@lru_cache(maxsize=16)
def _tensors_of(job: Job, stage: int) -> tuple[PlannedTensor, ...]:
    """Return the tensors. Cached: a plan asks for them dozens of times, a fit for one model's hundreds of times."""
    return (*local_tensors(job, stage), *adapter_tensors(job, stage))


def local_tensors(job: Job, stage: int = 0) -> list[PlannedTensor]:
    """Return the model's own tensors on a rank of this pipeline stage."""
    mine = stage_layers(job)[stage]
    last = stage == job.layout.pipeline_parallel_degree - 1
    found = []
    tensors = parameters(job.config)
    tied = not any(parameter.kind == HEAD for parameter in tensors)
    seen_layer = False
    for parameter in tensors:
        in_layer = LAYER.search(parameter.name)
        seen_layer = seen_layer or bool(in_layer)
        here = int(in_layer[1]) in mine if in_layer else (last if seen_layer else stage == 0)
        shared = tied and parameter.kind == WORD and last  # the head's stage has a copy of the word embedding
        if here or shared:
            found.append(_shard(parameter, job))
    return found


def _shard(parameter: Parameter, job: Job) -> PlannedTensor:
    axis = _axis(parameter, job)
    return PlannedTensor(
        parameter.name,
        _part(parameter.shape, axis, job),
        parameter.kind,
        axis is not None,
        parameter.kind != CORRECTION and (job.trains_all or parameter.name == SCORE),
        FLOAT32 if parameter.kind == CORRECTION else job.item,
        job.base if job.base and job.base.takes(parameter.name, parameter.kind == LINEAR) else None,
        job.host_embedding and parameter.kind == WORD,
    )


def _part(shape: tuple[int, ...], axis: int | None, job: Job) -> tuple[int, ...]:
    degree = job.layout.tensor_parallel_degree
    return tuple(size // degree if place == axis else size for place, size in enumerate(shape))


def adapter_tensors(job: Job, stage: int = 0) -> list[PlannedTensor]:
    """Return the adapter's tensors on a rank of this stage."""
    if isinstance(job.adapter, Prefix):
        width = 2 * layers(job.config) * key_value_heads(job.config) * head_size(job.config)
        shape = (job.adapter.tokens, width)
        return [PlannedTensor("prefix_encoder.0.weight", shape, ADAPTER, False, True, job.item)] if stage == 0 else []
    lora = job.adapter
    if not isinstance(lora, Lora):
        return []
    here = {parameter.name for parameter in local_tensors(job, stage)}
    matrices = [
        parameter for parameter in parameters(job.config) if parameter.kind == LINEAR and parameter.name in here
    ]
    adapted = [parameter for parameter in matrices if parameter.module in lora.targets]
    vocabulary = [one for one in parameters(job.config) if one.kind in (WORD, HEAD) and one.name in here - {SCORE}]
    shape = (lora.tokens, job.config["hidden_size"])
    rows = [
        PlannedTensor(f"{one.name.removesuffix('weight')}token_rows", shape, ADAPTER, False, True, job.item)
        for one in (vocabulary if lora.tokens else ())
    ]
    return [*rows, *(part for parameter in adapted for part in _lora_parts(parameter, lora, job))]


def _lora_parts(parameter: Parameter, lora: Lora, job: Job) -> list[PlannedTensor]:
    """Return A of [inputs, rank], B of [rank, outputs] and a DoRA's magnitude of [outputs].

    Those on the matrix's sharded axis are sharded, too.
    """
    axis = _axis(parameter, job)
    rank, (inputs, outputs) = lora.rank, parameter.shape
    name = parameter.name.removesuffix(".weight")
    first, second = (inputs, rank), (rank, outputs)
    magnitude = PlannedTensor(
        f"{name}.lora_magnitude", _part((outputs,), 0 if axis == 1 else None, job), ADAPTER, axis == 1, True, job.item
    )
    return [
        PlannedTensor(
            f"{name}.lora_A", _part(first, 0 if axis == 0 else None, job), ADAPTER, axis == 0, True, job.item
        ),
        PlannedTensor(
            f"{name}.lora_B", _part(second, 1 if axis == 1 else None, job), ADAPTER, axis == 1, True, job.item
        ),
        *([magnitude] if lora.dora else []),
    ]


def _axis(parameter: Parameter, job: Job) -> int | None:
    """Return the sharded axis, None for a tensor that each rank has whole."""
    degree = job.layout.tensor_parallel_degree
    if degree == 1 or parameter.kind in (NORM, POSITION, ROUTER, CORRECTION):
        return None
    if parameter.kind in (WORD, HEAD):
        axis = 0 if parameter.kind == WORD else 1
        return axis if parameter.shape[axis] % degree == 0 else None
    if parameter.module in ("k_proj", "v_proj") and key_value_heads(job.config) % degree:
        return None
    if parameter.kind == LINEAR:
        return 1 if parameter.module in COLUMN else 0
    return 0 if parameter.kind == BIAS and parameter.module in COLUMN else None


# Of group_sharded_parallel (paddle/distributed/sharding/group_sharded.py), in elements.
BUFFER_SIZE = 2**23
SEGMENT_SIZE = 2**20
# What buffers are padded to, bytes: `alignment` in group_sharded_utils.py.
GPU_ALIGNMENT, CPU_ALIGNMENT = 256, 4096
# A rehearsal slices tiny models, too (launch/rehearsal/collectives.py).
CPU_SEGMENT_SIZE = 2**10


def deal(sizes: list[int], ranks: int, largest_first: bool) -> list[int]:
    """Return the rank that gets each tensor: the one with the fewest elements so far."""
    order = sorted(range(len(sizes)), key=lambda index: -sizes[index]) if largest_first else range(len(sizes))
    owners, loads = [0] * len(sizes), [0] * ranks
    for index in order:
        owner = loads.index(min(loads))
        owners[index] = owner
        loads[owner] += sizes[index]
    return owners


def padded(size: int, item: int, alignment: int) -> int:
    """Return the elements of a tensor in a buffer whose tensors begin at multiples of `alignment` bytes."""
    return size + -(size * item) % alignment // item


@dataclass(frozen=True)
class Buffers:
    """Stage 2's gradient buffers.

    Attributes:
        size: Elements of each, one for every rank.
        members: Names in the buffer of a rank.
        last_owner: Whose buffer the tensor is in whose gradient is the last to come, the position embedding or else
            the model's first tensor; None: in no buffer.
    """

    size: int
    members: dict[int, tuple[str, ...]]
    last_owner: int | None


def gradient_buffers(
    tensors: Sequence[PlannedTensor], owners: list[int], ranks: int, item: int, alignment: int
) -> Buffers:
    """Return the gradient buffers: the smallest tensors first, as long as there is room.

    Others are reduced one by one.
    """
    loads = [0] * ranks
    for tensor, owner in zip(tensors, owners, strict=True):
        loads[owner] += padded(tensor.size, item, alignment)
    size = min(max(loads), BUFFER_SIZE)
    filled = [0] * ranks
    members: dict[int, list[str]] = {rank: [] for rank in range(ranks)}
    for tensor, owner in sorted(zip(tensors, owners, strict=True), key=lambda pair: pair[0].size):
        need = padded(tensor.size, item, alignment)
        if filled[owner] + need <= size:
            filled[owner] += need
            members[owner].append(tensor.name)
    last = next((index for index, tensor in enumerate(tensors) if tensor.kind == POSITION), 0)
    owner = owners[last] if tensors[last].name in members[owners[last]] else None
    return Buffers(size, {rank: tuple(names) for rank, names in members.items()}, owner)


def sliced(size: int, ranks: int, item: int, alignment: int) -> int:
    """Return the elements of a rank's slice of a tensor in stage 3."""
    return -(-padded(size, item, alignment) // ranks)
