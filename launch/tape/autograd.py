"""Bytes over time, and gradient nodes as Paddle's eager engine keeps and runs them.

Memory counts how many bytes are alive, by part, and the most there are in each phase. Lifetimes are explicit: bytes are
alive from the moment at which they are taken to the last moment at which `alive` names them. The peaks are computed at
the end, from these moments alone. When Python frees an object changes nothing.

A node holds what its operator saves (paddle/fluid/eager/backward.cc, RunBackward). Running it takes the gradients of
its outputs, makes those of its inputs, lets go of what was saved, and adds to gradients that are there already in
place. Nodes run in the order in which their last gradient arrives, leaves before others.

Equal parts of a model that run one after the other, such as experts, need not all be replayed: the first and the last
are, and one stands for all between. From one part to the next the bytes of each moment grow or shrink by as much, so
that the first or the last has the peak.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

FLOAT32 = 4  # bytes of an element


class Storage:
    """Bytes of a tensor.

    Attributes:
        part: What they are counted as.
        last: The last moment at which they are alive.
    """

    __slots__ = ("part", "size", "last")

    def __init__(self, part: str, size: int, moment: int):
        self.part, self.size, self.last = part, size, moment


class Memory:
    """The memory of a simulated run.

    A moment is the number of an event: bytes that are taken, bytes that change their part, a phase that begins.

    Attributes:
        granule: The allocator rounds up to it, bytes.
        part: Memory that is taken now belongs to it.
        recording: Whether operators get gradient nodes.
        copies: How many equal parts of the model the running part stands for. It takes as many times the bytes.
            They are right when it is done, but not meanwhile: these moments are no peaks.
    """

    def __init__(self, granule: int = 1):
        self.granule = granule
        self.part = ""
        self.recording = True
        self.copies = 1
        self._within: set[int] = set()  # moments at which something stands for several
        self._events: list[str | tuple[str, int]] = []  # the name of a phase, or a part's change in bytes
        self._taken: list[Storage] = []

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Count the memory taken within the block to this part, unless an outer one has been named."""
        before = self.part
        self.part = before or part
        try:
            yield
        finally:
            self.part = before

    @contextmanager
    def without_gradients(self) -> Iterator[None]:
        """Record no gradient nodes within the block."""
        before, self.recording = self.recording, False
        try:
            yield
        finally:
            self.recording = before

    @contextmanager
    def standing_for(self, copies: int) -> Iterator[None]:
        """Let the operations within the block stand for `copies` equal ones."""
        before, self.copies = self.copies, copies
        try:
            yield
        finally:
            self.copies = before

    def begin(self, phase: str) -> None:
        """Begin a phase."""
        self._events.append(phase)

    def take(self, size: int, part: str = "", copies: int = 1) -> Storage:
        """Take bytes that are alive now, and until the last call of `alive` with them.

        They count `copies` times, unless the running part stands for more.
        """
        moment = len(self._events)
        size = -(-size // self.granule) * self.granule
        if copies > 1 or self.copies > 1:
            size *= max(copies, self.copies)
        if self.copies > 1:
            self._within.add(moment)
        storage = Storage(part or self.part, size, moment)
        self._events.append((storage.part, size))
        self._taken.append(storage)
        return storage

    def alive(self, *storages: Storage | None) -> None:
        """Mark storages as alive at this moment. None stands for bytes that are counted elsewhere, such as a weight."""
        now = len(self._events) - 1
        for storage in storages:
            if storage is not None:
                storage.last = now

    def move(self, storage: Storage, part: str) -> None:
        """Count it in another part from now on."""
        if self.copies > 1:
            self._within |= {len(self._events), len(self._events) + 1}
        self._events += [(storage.part, -storage.size), (part, storage.size)]  # less first: no peak lies between
        storage.part = part
        self.alive(storage)

    def peaks(self) -> dict[str, dict[str, int]]:
        """Return by phase the bytes of each part at its highest moment. A phase that returns keeps its higher peak."""
        ends: dict[int, list[Storage]] = defaultdict(list)
        for storage in self._taken:
            ends[storage.last].append(storage)
        peaks: dict[str, dict[str, int]] = {}
        live: dict[str, int] = defaultdict(int)
        phase, total, highest, at_highest, is_highest = "", 0, 0, {}, False
        for moment, event in enumerate((*self._events, "")):
            if isinstance(event, str):
                at_highest = dict(live) if is_highest else at_highest
                if phase and (phase not in peaks or sum(peaks[phase].values()) < highest):
                    peaks[phase] = at_highest
                phase, highest, is_highest = event, total, True
            else:
                part, change = event
                live[part] += change
                total += change
                if total > highest and moment not in self._within:
                    highest, is_highest = total, True
            for storage in ends.get(moment, ()):
                if is_highest:  # the parts are noted before the highest moment passes
                    at_highest, is_highest = dict(live), False
                live[storage.part] -= storage.size
                total -= storage.size
        return peaks


class Tensor:
    """A tensor without values.

    Attributes:
        item: Bytes of an element.
        nbytes: Bytes of the elements.
        storage: None where its bytes are counted elsewhere.
        node: The operator that it comes from, None where it needs no gradient.
        slot: Which of the node's outputs it is.
        strided: A view whose elements are not in order.
        gathered: Bytes of a sharded parameter that is put together while it is used.
    """

    __slots__ = ("shape", "item", "nbytes", "storage", "node", "slot", "strided", "gathered")

    def __init__(
        self,
        shape: Iterable[int],
        item: int,
        storage: Storage | None,
        node: "Node | None" = None,
        slot: int = 0,
        strided: bool = False,
    ):
        self.shape, self.item, self.storage = tuple(shape), item, storage
        self.nbytes = prod(self.shape) * item
        self.node, self.slot, self.strided = node, slot, strided
        self.gathered = 0

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


class Node:
    """One operator of the forward pass.

    Attributes:
        inputs: (node, slot, bytes of its gradient) of each input that needs a gradient.
        saved: Tensors saved for backward.
        alias: The input whose gradient is the output's, without a copy.
        reused: Overwritten with the first input's gradient.
        temporary: Bytes while it runs.
        arguments: Saved by the node as long as the graph is there.
        copies: How many operators it stands for; the bytes of its gradients are of one.
    """

    __slots__ = ("memory", "part", "copies", "inputs", "saved", "alias", "temporary", "reused", "waiting", "arguments")

    gathered = 0  # bytes that the nodes which use this one need beside themselves, see Leaf

    def __init__(
        self,
        memory: Memory,
        inputs: "Sequence[tuple[Node, int, int]]",
        saved: Iterable[Storage] = (),
        alias: int | None = None,
        temporary: int = 0,
    ):
        self.memory, self.part, self.copies = memory, memory.part, memory.copies
        self.inputs, self.saved = inputs, list(saved)
        self.alias, self.temporary = alias, temporary
        self.reused: Storage | None = None
        self.waiting = 0
        self.arguments: Sequence[Tensor | None] = ()

    def takes_strided(self, output: Tensor) -> None:
        """Note that the gradient of this output will not be in order: the node needs a copy."""
        if self.alias is None:
            self.temporary += output.nbytes
        else:
            self.alias = None

    def gradients(self, incoming: dict[int, Storage]) -> list[Storage]:
        """Return the gradients of the inputs, from the outputs' gradients."""
        if self.reused:
            return [self.reused]
        outgoing = [
            incoming[0] if index == self.alias else self.memory.take(size, self.part, source.copies)
            for index, (source, _, size) in enumerate(self.inputs)
        ]
        if self.temporary:
            self.memory.take(self.temporary, self.part)
        return outgoing


class Leaf(Node):
    """The end of a gradient: a trained parameter, or a tensor that came from elsewhere.

    Attributes:
        gradient: The gradient that has arrived, True where its place is in a rank's permanent memory.
        arrived: Called after each addition.
        awaited: Whether something happens when it and others are here, so that no other leaf can stand for it.
        kept_as: The part that it is counted in once it is here, "" for the part of its node.
        gathered: Bytes of the whole gradient of a sharded parameter, while its user runs backward.
    """

    __slots__ = ("name", "shape", "size", "gradient", "arrived", "awaited", "kept_as", "gathered")

    def __init__(self, memory: Memory, name: str, shape: tuple[int, ...], size: int):
        super().__init__(memory, ())
        self.name, self.shape, self.size = name, shape, size
        self.gradient: Storage | bool | None = None
        self.arrived: Callable[[Leaf], None] | None = None
        self.awaited = False
        self.kept_as = ""
        self.gathered = 0

    def gradients(self, incoming: dict[int, Storage]) -> list[Storage]:
        """Add an arrived gradient."""
        if self.gradient is None:
            self.gradient = incoming[0]
            if self.kept_as:
                self.memory.move(incoming[0], self.kept_as)
        if self.arrived:
            self.arrived(self)
        return []


class Computed(Node):
    """An operator whose gradients the forward pass has computed: `results`, of the inputs, None for one made later."""

    __slots__ = ("results",)

    results: "list[Storage | None]"

    def gradients(self, incoming: dict[int, Storage]) -> list[Storage]:
        """Return the gradients of the inputs."""
        pairs = zip(self.results, self.inputs, strict=True)
        return [result or self.memory.take(size, self.part) for result, (_, _, size) in pairs]


class Deferred(Node):
    """Gradients of the inputs that the backward pass computes from what the node has saved, by `function`."""

    __slots__ = ("function",)

    function: Callable[[], list[Storage]]

    def gradients(self, incoming: dict[int, Storage]) -> list[Storage]:
        """Return the gradients that the function makes."""
        with self.memory.of(self.part):
            return self.function()


class SlicedBlock(Node):
    """A block over slices of its input, each computed again by `function`, which takes the output's gradient.

    It returns the gradients of the inputs (launch/training/sequence_slices.py).
    """

    __slots__ = ("function",)

    function: Callable[[Storage], list[Storage]]

    def gradients(self, incoming: dict[int, Storage]) -> list[Storage]:
        """Return the gradients that the function makes."""
        with self.memory.of(self.part):
            return self.function(incoming[0])


class Recomputed(Node):
    """A block whose forward pass runs again within the backward pass; only its input is saved.

    paddle/distributed/fleet/recompute/recompute.py, RecomputeFunction: a PyLayer whose forward records nothing and
    whose backward runs the function again on detached inputs, then backward through it. Its inputs are saved until the
    whole backward pass is over.

    Attributes:
        fetched: The first input comes back from host memory (launch/offload/activations.py), and with it the input
            of the block before, which is `ahead` of its time then.
    """

    __slots__ = ("function", "fetched", "ahead")

    function: Callable[..., Tensor]
    fetched: bool
    ahead: Storage | None

    def gradients(self, incoming: dict[int, Storage]) -> list[Storage]:
        """Run the block again, then backward through it."""
        detached = [self._detached(x) for x in self.arguments]
        if self.fetched:
            first = self.arguments[0]
            assert first is not None and detached[0] is not None, "a block has an input"
            detached[0].storage = self.ahead or self.memory.take(first.nbytes, self.part)
            if isinstance(first.node, Recomputed):
                first.node.ahead = self.memory.take(first.nbytes, self.part)
        output = self.function(*detached)
        backward(output, incoming[0])
        outgoing = []
        for x in detached:
            if x is not None and isinstance(x.node, Leaf):
                assert isinstance(x.node.gradient, Storage), "its backward pass reaches every input"
                outgoing.append(x.node.gradient)
        return outgoing

    def _detached(self, x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        leaf = Leaf(self.memory, "input", x.shape, x.elements) if x.node else None
        return Tensor(x.shape, x.item, x.storage, leaf, strided=x.strided)


def recompute(
    memory: Memory, function: Callable[..., Tensor], *arguments: Tensor | None, offloaded: bool = False
) -> Tensor:
    """Return function(*arguments) without saving its activations. offloaded: the first argument is offloaded, too."""
    with memory.without_gradients():
        output = function(*arguments)
    inputs = [(x.node, x.slot, x.nbytes) for x in arguments if x is not None and x.node]
    if inputs and memory.recording:
        node = Recomputed(memory, inputs)
        node.function, node.arguments, node.fetched, node.ahead = function, arguments, offloaded, None
        if offloaded and (x := arguments[0]) is not None:
            node.arguments = (Tensor(x.shape, x.item, None, x.node, x.slot, x.strided), *arguments[1:])
        output.node = node
    return output


def in_slices(
    memory: Memory,
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    size: int,
    weights: dict[str, Tensor],
    names: list[str],
) -> Tensor:
    """Return function(x), x [batch, length, ...], by slices of `size` tokens; one slice stands for all.

    Args:
        memory: Of the rank.
        function: Reads weights by name, and keeps the shape of x.
        x: The input.
        size: Tokens of a slice, fewer than x has.
        weights: All weights of the model.
        names: Of the trained ones that the function reads.
    """
    shape = (1, size, *x.shape[2:])
    out = Tensor(x.shape, x.item, memory.take(x.nbytes))

    def piece(leaf: Leaf | None) -> Tensor:
        return Tensor(shape, x.item, x.storage, leaf)

    with memory.without_gradients():
        memory.alive(function(piece(None)).storage, out.storage, x.storage)
    trained = {name: weights[name] for name in names}
    nodes = [(one.node, one.slot, one.nbytes) for one in (x, *trained.values()) if one.node]
    if not nodes or not memory.recording:
        return out

    def gradients(incoming: Storage) -> list[Storage]:
        whole = [memory.take(x.nbytes)] if x.node else []
        sums: list[Storage] = []
        for _ in range(2):
            leaves = {name: Leaf(memory, name, one.shape, one.elements) for name, one in trained.items()}
            weights.update({name: Tensor(one.shape, one.item, None, leaves[name]) for name, one in trained.items()})
            own = Leaf(memory, "slice", shape, size) if x.node else None
            backward(function(piece(own)), incoming)
            weights.update(trained)
            arrived = [one.gradient for one in (*([own] if own else []), *leaves.values())]
            found = [one for one in arrived if isinstance(one, Storage)]
            wide = (
                [memory.take(FLOAT32 * leaf.size) for leaf in leaves.values()]
                if x.item != FLOAT32
                else found[len(whole) :]
            )
            memory.alive(*whole, *found, *wide)
            sums = sums or wide
        if x.item != FLOAT32:
            cast = [memory.take(one.nbytes) for one in trained.values()]
            memory.alive(*sums)
            sums = cast
        return [*whole, *sums]

    node = SlicedBlock(memory, nodes, [x.storage] if x.storage else [])
    node.function, out.node = gradients, node
    return out


def backward(output: Tensor, gradient: Storage | None = None) -> None:
    """Run all nodes behind a tensor. gradient: of the output; ones where there is none."""
    root = output.node
    assert root is not None, "nothing behind this tensor needs a gradient"
    memory, nodes = root.memory, _graph(root)
    for node in nodes:
        node.waiting = 0
    for node in nodes:
        for source, _, _ in node.inputs:
            source.waiting += 1
    first = gradient or memory.take(output.nbytes, root.part)
    incoming_of: dict[Node, dict[int, Storage]] = {root: {output.slot: first}}
    ready = deque([root])
    while ready:
        node = ready.popleft()
        incoming = incoming_of.pop(node)
        memory.copies = node.copies
        outgoing = node.gradients(incoming)
        memory.alive(*incoming.values(), *node.saved, *outgoing)
        for (source, slot, _), storage in zip(node.inputs, outgoing, strict=True):
            # A gradient that is there already takes the other in place.
            incoming_of.setdefault(source, {}).setdefault(slot, storage)
            source.waiting -= 1
            if source.waiting == 0 and isinstance(source, Leaf):
                source.copies = node.copies
                ready.appendleft(source)
            elif source.waiting == 0:
                ready.append(source)
    memory.copies = 1
    memory.alive(output.storage, gradient, *(storage for node in nodes for storage in _kept(node)))


def keep_graph(output: Tensor) -> None:
    """Keep the tensor and all that backward from it will need alive at this moment."""
    root = output.node
    assert root is not None, "nothing behind this tensor needs a gradient"
    memory = root.memory
    memory.alive(output.storage)
    for node in _graph(root):
        memory.alive(*node.saved, *_kept(node))


def _graph(root: Node) -> list[Node]:
    """Return this node and all behind it."""
    seen, stack = {root}, [root]
    while stack:
        for source, _, _ in stack.pop().inputs:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return list(seen)


def _kept(node: Node) -> list[Storage | None]:
    return [x.storage for x in node.arguments if x is not None]
