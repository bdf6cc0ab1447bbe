"""Whole tensors from what the ranks hold of them, one tensor at a time: no rank needs room for a whole model."""

import numpy as np
import paddle
from paddle.distributed import fleet

from launch.checkpoint.state.parts import Part
from launch.checkpoint.state.tensors import Held
from launch.checkpoint.stored_tensor import numpy_dtype

Parts = list[dict[str, Part]]  # what each rank holds, by key


def parts_of_ranks(held: list[Held]) -> Parts:
    """Called by all ranks together."""
    mine = {one.key: one.part for one in held}
    if paddle.distributed.get_world_size() == 1:
        return [mine]
    parts: Parts = []
    paddle.distributed.all_gather_object(parts, mine)
    return parts


def whole_values(held: Held, parts: Parts) -> np.ndarray:
    """A whole tensor from what the ranks of this one's groups have of it; bfloat16 as uint16.

    Called by all ranks of the groups together.
    """
    part = held.part
    if part.is_whole:
        return held.values()
    hcg = fleet.get_hybrid_communicate_group()
    if part.flat is not None:
        slices = gathered(held.tensor, hcg.get_sharding_parallel_group())
        size = int(np.prod(part.undivided_shape, dtype=np.int64))
        return np.concatenate(slices)[:size].reshape(part.undivided_shape)
    group = hcg.get_model_parallel_group()
    whole = np.empty(part.shape, numpy_dtype(held.dtype))
    along = np.moveaxis(whole, part.axis, 0)
    for number, piece in zip(group.ranks, gathered(held.tensor, group), strict=True):
        piece, start = np.moveaxis(piece, part.axis, 0), 0
        for first, last in parts[number][held.key].ranges:
            along[first:last] = piece[start : start + last - first]
            start += last - first
    return whole


def give_to_others(held: Held) -> None:
    """For a rank that writes nothing, while others of its groups call whole_values: nothing comes to host memory."""
    if held.part.is_whole:
        return
    hcg = fleet.get_hybrid_communicate_group()
    if held.part.flat is not None:
        _of_group(held.tensor, hcg.get_sharding_parallel_group())
    else:
        _of_group(held.tensor, hcg.get_model_parallel_group())


def gathered(tensor: paddle.Tensor, group) -> list[np.ndarray]:
    """The tensor of each rank of a group, in host memory."""
    return [one.numpy() for one in _of_group(tensor, group)]


def _of_group(tensor: paddle.Tensor, group) -> list[paddle.Tensor]:
    """The tensor of each rank of a group; of one that is offloaded a copy on the device is sent."""
    tensors: list[paddle.Tensor] = []
    mine = tensor.detach()
    if mine.place.is_cuda_pinned_place():
        mine = mine._copy_to(paddle.framework._current_expected_place(), True)
    paddle.distributed.all_gather(tensors, mine, group=group)
    return tensors
