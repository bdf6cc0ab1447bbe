"""What each rank holds of a model: its pipeline stage's tensors, divided by tensor parallelism.

Follows paddlenlp 3.0.0b4: which layers are column or row parallel (launch/families/parameters.py has the
names), and how paddle.distributed.fleet's SegmentLayers deals layers to stages.
"""

import math
import re
from dataclasses import dataclass

from launch.families.parameters import (
    BIAS,
    HEAD,
    LINEAR,
    NORM,
    POSITION,
    WORD,
    Parameter,
    head_size,
    key_value_heads,
    layers,
)
from launch.families.registry import parameters
from launch.plan.job import Job, Lora, Prefix
from launch.tape.quantized import QuantizedBase

COLUMN = {
    "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "query_key_value", "dense_h_to_4h", "linear1",
}  # fmt: skip
ADAPTER = "adapter"  # a kind of tensor, beside those of launch/families/parameters.py
LAYER = re.compile(r"\.(?:layers|h)\.(\d+)\.")


@dataclass(frozen=True)
class Held:
    """A tensor as one rank holds it. divided: over the tensor parallel ranks. item: bytes of a number. base: how it is
    quantized."""

    name: str
    shape: tuple[int, ...]
    kind: str
    divided: bool
    trained: bool
    item: int
    base: QuantizedBase | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.base.nbytes(*self.shape) if self.base else self.size * self.item


def stage_layers(job: Job) -> list[range]:
    """The transformer layers of each pipeline stage.

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


def held(job: Job, stage: int = 0) -> list[Held]:
    """All tensors of the model's own that a rank of this pipeline stage holds."""
    mine = stage_layers(job)[stage]
    last = stage == job.layout.pipeline_parallel_degree - 1
    found = []
    tensors = parameters(job.config)
    tied = not any(one.kind == HEAD for one in tensors)
    seen_layer = False
    for one in tensors:
        in_layer = LAYER.search(one.name)
        seen_layer = seen_layer or bool(in_layer)
        here = int(in_layer[1]) in mine if in_layer else (last if seen_layer else stage == 0)
        shared = tied and one.kind == WORD and last  # the head's stage has a copy of the word embedding
        if here or shared:
            found.append(_divide(one, job))
    return found


def _divide(one: Parameter, job: Job) -> Held:
    axis = _axis(one, job)
    return Held(
        one.name,
        _part(one.shape, axis, job),
        one.kind,
        axis is not None,
        job.trains_all,
        job.item,
        job.base if one.kind == LINEAR else None,
    )


def _part(shape: tuple[int, ...], axis: int | None, job: Job) -> tuple[int, ...]:
    degree = job.layout.tensor_parallel_degree
    return tuple(size // degree if place == axis else size for place, size in enumerate(shape))


def adapter(job: Job, stage: int = 0) -> list[Held]:
    """The tensors of an adapter that a rank of this stage holds."""
    if isinstance(job.adapter, Prefix):
        width = 2 * layers(job.config) * key_value_heads(job.config) * head_size(job.config)
        shape = (job.adapter.tokens, width)
        return [Held("prefix_encoder.0.weight", shape, ADAPTER, False, True, job.item)] if stage == 0 else []
    if not isinstance(job.adapter, Lora):
        return []
    here = {one.name for one in held(job, stage)}
    matrices = [one for one in parameters(job.config) if one.kind == LINEAR and one.name in here]
    return [
        half for one in matrices if one.name.split(".")[-2] in job.adapter.targets for half in _lora_halves(one, job)
    ]


def _lora_halves(one: Parameter, job: Job) -> list[Held]:
    """A of [inputs, rank] and B of [rank, outputs]: the one on the matrix's divided axis is divided, too."""
    axis = _axis(one, job)
    rank, (inputs, outputs) = job.adapter.rank, one.shape
    name = one.name.removesuffix(".weight")
    first, second = (inputs, rank), (rank, outputs)
    return [
        Held(f"{name}.lora_A", _part(first, 0 if axis == 0 else None, job), ADAPTER, axis == 0, True, job.item),
        Held(f"{name}.lora_B", _part(second, 1 if axis == 1 else None, job), ADAPTER, axis == 1, True, job.item),
    ]


def _axis(one: Parameter, job: Job) -> int | None:
    """Which axis is divided, None for a tensor that each rank has whole."""
    degree = job.layout.tensor_parallel_degree
    if degree == 1 or one.kind in (NORM, POSITION):
        return None
    if one.kind in (WORD, HEAD):
        axis = 0 if one.kind == WORD else 1
        return axis if one.shape[axis] % degree == 0 else None
    layer = one.name.split(".")[-2]
    if layer in ("k_proj", "v_proj") and job.key_value_heads % degree:
        return None
    if one.kind == LINEAR:
        return 1 if layer in COLUMN else 0
    return 0 if one.kind == BIAS and layer in COLUMN else None
