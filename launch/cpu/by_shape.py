"""A few tensors that depend on nothing but a shape, kept from call to call."""

from collections import OrderedDict
from collections.abc import Callable

import paddle


class ByShape:
    """The tensors made for the last `limit` shapes (a training uses two or three); older ones are dropped."""

    def __init__(self, limit: int = 4):
        self._limit = limit
        self._made: OrderedDict[tuple[int, ...], object] = OrderedDict()

    def get(self, shape: tuple[int, ...], make: Callable[[], object]):
        """What `make` gave for this shape the first time. `make` runs without gradients."""
        if shape not in self._made:
            with paddle.no_grad():
                self._made[shape] = make()
        self._made.move_to_end(shape)
        while len(self._made) > self._limit:
            self._made.popitem(last=False)
        return self._made[shape]
