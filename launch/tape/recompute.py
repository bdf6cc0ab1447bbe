"""Recomputation: what is kept is the input, and the forward pass runs again within the backward pass.

paddle/distributed/fleet/recompute/recompute.py, RecomputeFunction: a PyLayer whose forward records nothing and whose
backward runs the function again on detached inputs, then backward through it.
"""

from collections.abc import Callable

from launch.tape.autograd import Leaf, Node, Tensor, backward
from launch.tape.memory import Storage


class Recomputed(Node):
    """function: what runs again. arguments: what it runs on, None among them."""

    __slots__ = ("function", "arguments")

    def gradients(self, incoming: dict[int, Storage]) -> list[Storage]:
        detached = [self._detached(one) for one in self.arguments]
        output = self.function(*detached)
        backward(output, incoming[0])
        del output
        return [one.node.gradient for one in detached if one is not None and one.node]

    def _detached(self, x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        leaf = Leaf(self.memory, "input", x.shape, x.elements) if x.node else None
        return Tensor(x.shape, x.item, x.storage, leaf, strided=x.strided)


def run_again(function: Callable, *arguments: Tensor | None) -> Tensor:
    """function(*arguments), of whose activations nothing is kept."""
    given = [one for one in arguments if one is not None]
    memory = given[0].storage.memory
    with memory.without_gradients():
        output = function(*arguments)
    wanted = [one for one in given if one.node]
    if wanted and memory.recording:
        node = Recomputed(memory, [(one.node, one.slot, one.nbytes) for one in wanted])
        # The arguments' own nodes are not kept: upstream detaches them in backward.
        node.function, node.arguments = function, arguments
        output.node = node
    return output
