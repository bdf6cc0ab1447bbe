"""This rank's tensors of the model and the optimizer, under the names that they have on one process.

    tensors = local_tensors(model, optimizer, training_args)

Called after the Trainer has wrapped both for the layout. Tensor parallelism shards matrices, stage 3 slices what
remains, stages 1 and 2 shard the optimizer's states by parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paddle
from paddle.base import core
from paddle.distributed import fleet
from paddlenlp.peft import LoRAModel, PrefixModelForCausalLM

from launch.checkpoint.manifest import Manifest
from launch.checkpoint.parts import MODEL, OPTIMIZER, Part, assemble, ranges_of, stored_tensors
from launch.checkpoint.ranks import gather
from launch.checkpoint.stored_tensor import bytes_of, numpy_dtype
from launch.checkpoint.weight_files import Misfits
from launch.errors import UserError

MASTER_WEIGHT = "master_weight"


@dataclass(frozen=True)
class LocalTensor:
    """A tensor, or the part of it that this rank has.

    Attributes:
        kind: MODEL or OPTIMIZER. key: in the files: NAME of a parameter, NAME/moment1 of its state.
        tensor: The one that training uses; under stage 3 it may have padding behind the part's elements.
    """

    kind: str
    key: str
    part: Part
    tensor: paddle.Tensor

    @property
    def dtype(self) -> str:
        """The dtype, by its name."""
        return str(self.tensor.dtype).removeprefix("paddle.")

    @property
    def nbytes(self) -> int:
        """Its size in a file."""
        return bytes_of(self.dtype, self.part.shape_here)

    def values(self) -> np.ndarray:
        """Return the part in host memory, bfloat16 as uint16.

        On a CPU it is the tensor's memory, which the next step changes.

        numpy() of a tensor that lies in a larger buffer, as sharding and fusion make them, copies the whole buffer
        (tensor_method_numpy in paddle/fluid/pybind/eager_method.cc), and on a card with the thread's current device,
        which is card 0 in a new thread. _copy_to takes the tensor's own elements, from the tensor's own card.
        """
        tensor = self.tensor.detach()
        if not tensor.place.is_cpu_place():
            tensor = tensor._copy_to(core.CPUPlace(), True)
        elif self.dtype == "bfloat16":
            tensor = tensor.clone()
        values = tensor.numpy() if self.dtype == "bfloat16" else np.from_dlpack(tensor)  # which knows no bfloat16
        if self.part.flat is not None:
            values = values.reshape(-1)[: self.part.shape_here[0]]
        return values.reshape(self.part.shape_here)

    def fill(self, values: np.ndarray) -> None:
        """Overwrite the tensor in place: sharding has several in one buffer, offload some in the host.

        Padding becomes 0.
        """
        padding = int(np.prod(self.tensor.shape)) - values.size
        if padding:
            values = np.concatenate([values.reshape(-1), np.zeros(padding, values.dtype)])
        values = np.asarray(values.reshape(self.tensor.shape), order="C")
        self.tensor.get_tensor().set(values, self._place())

    def _place(self):
        """Return the place of the tensor: AdamW's powers of beta are in host memory on cards, too."""
        place = self.tensor.place
        if place.is_cuda_pinned_place():
            return paddle.CUDAPinnedPlace()
        return core.CPUPlace() if place.is_cpu_place() else paddle.framework._current_expected_place()


def trains_all(model) -> bool:
    """Return whether the whole model is trained, not an adapter of a frozen one."""
    return not isinstance(model, (LoRAModel, PrefixModelForCausalLM))


def local_tensors(model, optimizer, training_args) -> list[LocalTensor]:
    """Return the parameters (of an adapter: the trained ones), and the optimizer's states where `optimizer` is given.

    States that the first step would create are created. It waits for the card first: with enable_stage2_overlap the
    weights of other ranks arrive on a stream of their own, for which only the next forward pass waits.

    Args:
        model: The Trainer's argument, not its wrapper.
        optimizer: With states, or None.
        training_args: Of the Trainer.
    """
    if paddle.get_device().startswith("gpu"):
        paddle.device.synchronize()
    tensors = []
    states = _OptimizerStates(optimizer) if optimizer is not None else None
    named = named_parameters(model)
    splits = _split_actions(model, list(named))
    for name, parameter in named.items():
        part = _part(model, parameter, splits.get(name))
        storage, part = _storage(parameter, part, training_args)
        tensors.append(LocalTensor(MODEL, name, part, storage))
        if states and not parameter.stop_gradient:
            for kind, state in states.of(parameter, storage):
                # A state has the parameter's part, or one element for the whole parameter (AdamW's powers of beta). On
                # one process it may have a shape of its own (launch/training/eight_bit_moments.py).
                shape = tuple(state.shape)
                as_parameter = not part.is_whole and (int(np.prod(shape)) > 1 or part.shape_here == shape)
                tensors.append(LocalTensor(OPTIMIZER, f"{name}/{kind}", part if as_parameter else Part(shape), state))
    return tensors


def named_parameters(model) -> dict[str, paddle.Tensor]:
    """Return each tensor of a checkpoint once, by its first name: a tied head has two."""
    if isinstance(model, PrefixModelForCausalLM):
        return model.prefix_encoder.state_dict()
    tensors = {}
    for name, tensor in (model.model if isinstance(model, LoRAModel) else model).state_dict().items():
        if trains_all(model) or not tensor.stop_gradient:
            tensors.setdefault(id(tensor), (name, tensor))
    return dict(tensors.values())


def innermost(optimizer):
    """Return the optimizer without the wrappers of fleet and sharding."""
    for name in ("_inner_opt", "_optim"):
        inner = vars(optimizer).get(name, optimizer)
        if inner is not optimizer:
            return innermost(inner)
    return optimizer


# ---- parts


def _part(model, parameter, split: Callable | None) -> Part:
    """Return this rank's part of a tensor under tensor parallelism. split: from _split_actions."""
    config = (model if trains_all(model) else model.model).config
    shape, degree = list(parameter.shape), config.tensor_parallel_degree
    if degree <= 1 or not getattr(parameter, "is_distributed", False):
        return Part(tuple(shape))
    axis = parameter.split_axis
    whole = [*shape[:axis], shape[axis] * degree, *shape[axis + 1 :]]
    positions = np.arange(whole[axis])
    if split is None:
        mine = np.split(positions, degree)[config.tensor_parallel_rank]
    else:  # the family's own function, on positions instead of values: it cuts fused projections in several places
        line = [1] * len(shape)
        line[axis] = -1
        mine = np.asarray(split(positions.reshape(line))).reshape(-1)
    return Part(tuple(whole), axis, ranges_of(mine))


def _split_actions(model, names: list[str]) -> dict[str, Callable]:
    """Return paddlenlp's functions from a whole tensor to this rank's part, by name; other tensors are cut evenly."""
    if (model if trains_all(model) else model.model).config.tensor_parallel_degree <= 1:
        return {}
    if isinstance(model, LoRAModel):
        return model._get_tensor_parallel_convert_actions(names, ignore_error=True)
    if trains_all(model):
        return type(model).get_tensor_parallel_convert_actions(model.config, names, ignore_error=True)
    return {}


def _storage(parameter, part: Part, training_args):
    """Return (the tensor with the values, its part): under stage 3 a slice of the flattened parameter."""
    if not hasattr(parameter, "fw_storage"):
        return parameter, part
    size = int(np.prod(part.unsliced_shape, dtype=np.int64))
    rank, length = training_args.sharding_parallel_rank, parameter.fw_storage.shape[0]
    start, stop = min(rank * length, size), min((rank + 1) * length, size)
    return parameter.fw_storage, Part(part.shape, part.axis, part.ranges, (start, stop))


class _OptimizerStates:
    """The states of the parameters that the optimizer updates on this rank."""

    def __init__(self, optimizer):
        self.rank_of = getattr(optimizer, "param2rank", None)  # stage 2, where every rank lists all parameters
        self.rank = getattr(optimizer, "_rank", None)
        self.optimizer = innermost(optimizer)
        self.listed = {parameter.name for parameter in self.optimizer._parameter_list}

    def of(self, parameter, storage) -> list[tuple[str, paddle.Tensor]]:
        """Return the (kind, state) pairs of a parameter; none where another rank has them."""
        if self.rank_of is not None and self.rank_of[parameter.name] != self.rank:
            return []
        if storage is parameter and parameter.name not in self.listed:
            return []
        block = paddle.base.framework.default_main_program().global_block()
        self.optimizer._create_accumulators(block, [storage])
        states, owner = [], storage
        if storage.name in getattr(self.optimizer, "_master_weights", {}):
            owner = self.optimizer._master_weights[storage.name]
            states.append((MASTER_WEIGHT, owner))
        for kind, of_parameters in self.optimizer._accumulators.items():
            if owner.name in of_parameters:
                states.append((kind, of_parameters[owner.name]))
        return states


# ---- filled from the files of a checkpoint, one tensor at a time


def restore_tensors(checkpoint: Path, manifest: Manifest, tensors: list[LocalTensor]) -> None:
    """Fill every tensor with its values in the checkpoint, which may be of another layout.

    Called by all ranks together.

    Raises:
        UserError: On all of them where the checkpoint lacks tensors, or has others of these kinds.
    """
    stored = stored_tensors(checkpoint, manifest)
    mine = {(tensor.kind, tensor.key, tensor.dtype) for tensor in tensors}
    known = set().union(*gather(mine))
    kinds = {kind for kind, *_ in known}
    extra = {key for key in stored if key[0] in kinds} - known
    _require_fit(
        checkpoint,
        Misfits(missing=set(map(_key_and_dtype, known - stored.keys())), extra=set(map(_key_and_dtype, extra))),
    )
    incomplete = set()
    for tensor in tensors:
        values = assemble(tensor.part, stored[tensor.kind, tensor.key, tensor.dtype])
        if values is None:
            incomplete.add(f"{tensor.key} {list(tensor.part.shape_here)} {tensor.dtype}")
        elif not incomplete:
            tensor.fill(values)
    _require_fit(checkpoint, Misfits(missing=set().union(*gather(incomplete))))


def _key_and_dtype(tensor: tuple[str, str, str]) -> str:
    _, key, dtype = tensor
    return f"{key} {dtype}"


def _require_fit(checkpoint: Path, misfits: Misfits) -> None:
    if misfits:
        raise UserError(f"{checkpoint} is not of this model: {misfits}.")


# ---- whole tensors from the parts of all ranks, one at a time: no rank needs memory for a whole model


Parts = list[dict[str, Part]]  # for each rank: its parts by key


def parts_of_ranks(tensors: list[LocalTensor]) -> Parts:
    """Return the parts of all ranks. All ranks call it together."""
    return gather({tensor.key: tensor.part for tensor in tensors})


def whole_values(local: LocalTensor, parts: Parts) -> np.ndarray:
    """Return a whole tensor from the parts of the ranks in this one's groups, bfloat16 as uint16.

    All ranks of the groups call it together.
    """
    part = local.part
    if part.is_whole:
        return local.values()
    hcg = fleet.get_hybrid_communicate_group()
    if part.flat is not None:
        slices = gathered(local.tensor, hcg.get_sharding_parallel_group())
        size = int(np.prod(part.unsliced_shape, dtype=np.int64))
        return np.concatenate(slices)[:size].reshape(part.unsliced_shape)
    group = hcg.get_model_parallel_group()
    assert part.axis is not None
    whole = np.empty(part.shape, numpy_dtype(local.dtype))
    along = np.moveaxis(whole, part.axis, 0)
    for number, piece in zip(group.ranks, gathered(local.tensor, group), strict=True):
        piece, start = np.moveaxis(piece, part.axis, 0), 0
        for first, last in parts[number][local.key].ranges:
            along[first:last] = piece[start : start + last - first]
            start += last - first
    return whole


def give_to_others(local: LocalTensor) -> None:
    """Take part in `whole_values` of other ranks without copying anything to host memory."""
    if local.part.is_whole:
        return
    hcg = fleet.get_hybrid_communicate_group()
    if local.part.flat is not None:
        _of_group(local.tensor, hcg.get_sharding_parallel_group())
    else:
        _of_group(local.tensor, hcg.get_model_parallel_group())


def gathered(tensor: paddle.Tensor, group) -> list[np.ndarray]:
    """Return the tensor of each rank of a group, in host memory."""
    return [piece.numpy() for piece in _of_group(tensor, group)]


def _of_group(tensor: paddle.Tensor, group) -> list[paddle.Tensor]:
    """Return the tensor of each rank of a group. An offloaded tensor is sent from a copy on the device."""
    tensors: list[paddle.Tensor] = []
    mine = tensor.detach()
    if mine.place.is_cuda_pinned_place():
        mine = mine._copy_to(paddle.framework._current_expected_place(), True)
    paddle.distributed.all_gather(tensors, mine, group=group)
    return tensors
