"""Gradient nodes as Paddle's eager engine keeps and runs them (paddle/fluid/eager/backward.cc, RunBackward).

A node holds what its operator saves. Running it takes the gradients of its outputs, makes those of its inputs, lets go
of what was saved, and adds to gradients that are there already in place. Nodes run in the order in which their last
gradient arrives, leaves before others.
"""

from collections import deque

from launch.tape.memory import Memory, Storage


class Tensor:
    """shape, bytes of a number, where it lies, and the node that it comes from: None where no gradient is wanted.

    slot: which of the node's outputs it is. strided: a view whose numbers do not lie in order. gathered: bytes that
    are put together while it is used, of a sliced parameter.
    """

    __slots__ = ("shape", "item", "storage", "node", "slot", "strided", "gathered")

    def __init__(self, shape, item, storage, node=None, slot=0, strided=False):
        self.shape, self.item, self.storage = tuple(shape), item, storage
        self.node, self.slot, self.strided = node, slot, strided
        self.gathered = 0

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        return self.elements * self.item


class Node:
    """One operator of the forward pass.

    inputs: (node, slot, bytes of its gradient) of each input that wants a gradient. saved: what is kept for backward.
    alias: which input's gradient is the output's, without a copy. reused: what is overwritten with the first input's.
    temporary: bytes while it runs.
    """

    __slots__ = ("memory", "part", "inputs", "saved", "alias", "temporary", "reused", "waiting")

    gathered = 0  # bytes that the nodes which use this one need beside themselves, see Leaf

    def __init__(self, memory: Memory, inputs, saved=(), alias=None, temporary=0):
        self.memory, self.part = memory, memory.part
        self.inputs, self.saved = inputs, list(saved)
        self.alias, self.temporary = alias, temporary
        self.reused = None
        self.waiting = 0

    def takes_strided(self, output: Tensor) -> None:
        """The gradient of this output will not lie in order: the node needs a copy."""
        if self.alias is None:
            self.temporary += output.nbytes
        else:
            self.alias = None

    def gradients(self, incoming: dict[int, Storage]) -> list[Storage]:
        """Of the inputs, from those of the outputs."""
        if self.reused:
            return [self.reused]
        outgoing = [
            incoming[0] if index == self.alias else Storage(self.memory, size, self.part)
            for index, (_, _, size) in enumerate(self.inputs)
        ]
        if self.temporary:
            Storage(self.memory, self.temporary, self.part)
        return outgoing


class Leaf(Node):
    """Where gradients end: a trained parameter, or a tensor that came from elsewhere.

    gradient: what has arrived, True where its place is among what a rank always keeps. arrived: called after each
    addition. kept_as: the part that it is counted in once it is here, "" for that of the node it came from. gathered:
    bytes of the whole gradient of a sliced parameter, while what uses it runs backward.
    """

    __slots__ = ("name", "shape", "size", "gradient", "arrived", "kept_as", "gathered")

    def __init__(self, memory: Memory, name: str, shape: tuple[int, ...], size: int):
        super().__init__(memory, ())
        self.name, self.shape, self.size = name, shape, size
        self.gradient = self.arrived = None
        self.kept_as = ""
        self.gathered = 0

    def gradients(self, incoming: dict[int, Storage]) -> list[Storage]:
        if self.gradient is None:
            self.gradient = incoming[0]
            if self.kept_as:
                self.gradient.move(self.kept_as)
        if self.arrived:
            self.arrived(self)
        return []


def backward(output: Tensor, gradient: Storage | None = None) -> None:
    """Run all nodes behind a tensor. gradient: of the output; ones where there is none."""
    root = output.node
    _count_uses(root)
    first = gradient or Storage(root.memory, output.nbytes, root.part)
    waiting: dict[Node, dict[int, Storage]] = {root: {output.slot: first}}
    del first, gradient, output
    ready = deque([root])
    del root
    while ready:
        node = ready.popleft()
        incoming = waiting.pop(node)
        outgoing = node.gradients(incoming)
        node.saved = node.reused = None
        for (source, slot, _), storage in zip(node.inputs, outgoing, strict=True):
            # A gradient that is there already takes the other in place.
            waiting.setdefault(source, {}).setdefault(slot, storage)
            source.waiting -= 1
            if source.waiting == 0:
                ready.appendleft(source) if isinstance(source, Leaf) else ready.append(source)
        storage = None
        del incoming, outgoing


def _count_uses(root: Node) -> None:
    """How many gradients each node waits for."""
    seen, stack = {root}, [root]
    while stack:
        for source, _, _ in stack.pop().inputs:
            source.waiting = source.waiting + 1 if source in seen else 1
            if source not in seen:
                seen.add(source)
                stack.append(source)
