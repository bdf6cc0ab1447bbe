"""How optimizer states, gradients and parameters are dealt to the ranks of a sharding group.

Follows paddle 3.3.1, paddle/distributed/fleet: stage 1 deals whole tensors, the largest first, each to the rank that
has the least (dygraph_sharding_optimizer.py, _partition_parameters); stage 2 does so in the model's order and moves the
parameters into one padded buffer for each rank (group_sharded_optimizer_stage2.py); stage 3 slices each tensor above
2**20 numbers and leaves the others whole (group_sharded_stage3.py).
"""

from dataclasses import dataclass

from launch.families.parameters import POSITION
from launch.plan.memory.division import Held

# Of group_sharded_parallel (paddle/distributed/sharding/group_sharded.py), in numbers.
BUFFER_SIZE = 2**23
SEGMENT_SIZE = 2**20
# What buffers are padded to, bytes: `alignment` in group_sharded_utils.py.
GPU_ALIGNMENT, CPU_ALIGNMENT = 256, 4096
# A rehearsal slices tiny models, too (launch/rehearsal/device_checks.py).
CPU_SEGMENT_SIZE = 2**10


def deal(sizes: list[int], ranks: int, largest_first: bool) -> list[int]:
    """Which rank gets each tensor: the one that has the fewest numbers so far."""
    order = sorted(range(len(sizes)), key=lambda index: -sizes[index]) if largest_first else range(len(sizes))
    owners, loads = [0] * len(sizes), [0] * ranks
    for index in order:
        owner = loads.index(min(loads))
        owners[index] = owner
        loads[owner] += sizes[index]
    return owners


def padded(size: int, item: int, alignment: int) -> int:
    """Numbers of a tensor in a buffer whose tensors begin at multiples of so many bytes."""
    return size + -(size * item) % alignment // item


@dataclass(frozen=True)
class Buffers:
    """Stage 2's gradient buffers. size: numbers of each, one for every rank. members: names in the buffer of a rank.
    last_owner: whose buffer the tensor is in whose gradient is the last to come, the position embedding or else the
    model's first tensor; None: in no buffer."""

    size: int
    members: dict[int, tuple[str, ...]]
    last_owner: int | None


def gradient_buffers(
    tensors: tuple[Held, ...], owners: tuple[int, ...], ranks: int, item: int, alignment: int
) -> Buffers:
    """The smallest tensors first, as long as there is room; the others are reduced one by one."""
    loads = [0] * ranks
    for tensor, owner in zip(tensors, owners, strict=True):
        loads[owner] += padded(tensor.size, item, alignment)
    size = min(max(loads), BUFFER_SIZE)
    filled, members = [0] * ranks, {rank: () for rank in range(ranks)}
    for tensor, owner in sorted(zip(tensors, owners, strict=True), key=lambda pair: pair[0].size):
        need = padded(tensor.size, item, alignment)
        if filled[owner] + need <= size:
            filled[owner] += need
            members[owner] += (tensor.name,)
    last = next((index for index, one in enumerate(tensors) if one.kind == POSITION), 0)
    owner = owners[last] if tensors[last].name in members[owners[last]] else None
    return Buffers(size, members, owner)


def sliced(size: int, ranks: int, item: int, alignment: int) -> int:
    """Numbers of a rank's slice of a tensor in stage 3."""
    return -(-padded(size, item, alignment) // ranks)
