"""What becomes of a gradient when it arrives, by the stage of sharding."""

from launch.plan.job import Job
from launch.plan.memory.sharding import Buffers
from launch.plan.memory.states import States
from launch.tape.autograd import Leaf
from launch.tape.timeline import Memory, Storage

PART = "gradients"


class KeptGradients:
    """One process, data parallel and stage 1: every gradient has its place all the time."""

    def begin(self) -> None:
        """A forward pass begins."""

    def watch(self, leaf: Leaf) -> None:
        leaf.gradient = True

    def kept(self) -> list[Storage]:
        return []


class BufferedGradients:
    """Stage 2: the smaller tensors of other ranks have a buffer for each rank, from the begin of the forward pass until
    all of them have arrived; a larger one is given away as soon as it is there."""

    def __init__(self, memory: Memory, states: States, shard: int, item: int):
        self.memory, self.states, self.item = memory, states, item
        buffers: Buffers = states.buffers
        self.owner = {name: rank for rank, names in buffers.members.items() for name in names if rank != shard}
        self.open: dict[int, Storage] = {}
        self.missing: dict[int, int] = {}

    def begin(self) -> None:
        for rank in set(self.owner.values()):
            buffer = self.memory.take(self.states.buffers.size * self.item, PART)
            self.memory.alive(self.open.get(rank))
            self.open[rank] = buffer
            self.missing[rank] = len(self.states.buffers.members[rank])

    def watch(self, leaf: Leaf) -> None:
        if leaf.name in self.states.mine:
            leaf.gradient = True
        elif leaf.name in self.owner:
            leaf.gradient = True
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
        return list(self.open.values())


class SlicedGradients:
    """Stage 3: a sliced tensor's gradient is summed whole, then a rank keeps its slice until the optimizer's step, in
    host memory where gradients are offloaded."""

    def __init__(self, memory: Memory, states: States, item: int, offloaded: bool):
        self.memory, self.states, self.item, self.offloaded = memory, states, item, offloaded
        self.slices: dict[str, Storage] = {}

    def begin(self) -> None:
        pass

    def watch(self, leaf: Leaf) -> None:
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
        return list(self.slices.values())


def _give_away(leaf: Leaf) -> None:
    leaf.gradient = None


def gradients_of(job: Job, memory: Memory, states: States, shard: int):
    if job.layout.sharding == "stage2":
        return BufferedGradients(memory, states, shard, job.gradient_item)
    if job.layout.sharding == "stage3":
        return SlicedGradients(memory, states, job.gradient_item, job.offload.gradients)
    return KeptGradients()
