"""The inputs of recomputed layers in host memory, from the forward pass until the layer's backward pass needs them.

`--recompute 1` keeps one tensor a layer, the layer's input: micro batch x length x hidden numbers. `--offload
activations` copies it to host memory while the layer computes, and back before the layer is computed again. The copy of
the layer before begins at the same time, so two of them are on the device at once, whatever the number of layers.

A copy changes no bit, so losses and gradients are those of the run without offload. On a GPU host memory is page-locked
and copies run on a stream of their own beside the computation; that has not been run.
"""

import sys

import paddle
from paddle.distributed.fleet.recompute.recompute import _recompute_without_reentrant

from launch.offload.host_memory import Lane, in_host_memory

Tensor = paddle.Tensor


class Residual:
    """A layer's input in host memory.

    Attributes:
        ahead: (device tensor, event) of a copy that was begun early.
        previous: The one that a backward pass needs next.
    """

    __slots__ = ("host", "ahead", "previous")

    def __init__(self, host: Tensor, previous: "Residual | None"):
        self.host: Tensor | None = host
        self.ahead: tuple | None = None
        self.previous = previous


class Residuals:
    """The inputs of the layers of one process, in the order of their forward passes.

    Host memory is used again by later micro batches. A backward pass fetches the inputs in the opposite order; of
    several micro batches under way, as in a pipeline, the first is done first, so none reaches into another's.
    """

    def __init__(self):
        self._lane = Lane()
        self._free: list[Tensor] = []
        self._latest: Residual | None = None

    def put(self, tensor: Tensor) -> Residual:
        """Offload a tensor."""
        self._latest = Residual(self._host_copy(tensor), self._latest)
        return self._latest

    def fetch(self, residual: Residual) -> Tensor:
        """Return a tensor on the device, as a leaf that collects a gradient; the copy of the one before begins."""
        device, copied = residual.ahead or self._begin(residual)
        self._lane.wait(copied)
        if residual.previous is not None and residual.previous.host is not None:
            residual.previous.ahead = self._begin(residual.previous)
        residual.ahead = residual.previous = None
        device.stop_gradient = False
        return device

    def _begin(self, residual: Residual) -> tuple:
        """Begin the copy to the device.

        The host memory is free at once: a later copy into it waits for this one, on the same stream.
        """
        host, residual.host = residual.host, None
        assert host is not None, "a layer's backward pass runs once"
        device = paddle.empty(host.shape, host.dtype)
        copied = self._lane.copy(device, host)
        self._free.append(host)
        return device, copied

    def _host_copy(self, tensor: Tensor) -> Tensor:
        """Copy a tensor to host memory, of an earlier tensor of this shape where some is free.

        Batches of another length take its place instead of staying beside it.
        """
        for index, host in enumerate(self._free):
            if host.shape == tensor.shape and host.dtype == tensor.dtype:
                self._lane.copy(host, tensor.detach())
                return self._free.pop(index)
        if self._free:
            self._free.pop(0)
        return in_host_memory(tensor.detach())


def offload_activations(model) -> Residuals:
    """Have the layers of a paddlenlp model that are recomputed as a whole keep their inputs in host memory.

    The modules of its layers get another `recompute`, since they call it by that name.
    """
    residuals = Residuals()

    def recompute(function, hidden_states, *others, preserve_rng_state=True, use_reentrant=False, **named):
        """Recompute as Paddle does, by hooks for every family: use_reentrant is not read.

        Paddle's other implementation, a PyLayer, saves its inputs itself; both compute the same.
        """
        if hidden_states.stop_gradient or not paddle.is_grad_enabled():
            return function(hidden_states, *others, **named)
        if hidden_states.offset:  # a rank's part of a sequence: what autograd saves of it lies at that offset for good
            hidden_states = hidden_states.clone()
        entering, residual = [hidden_states], residuals.put(hidden_states)

        def run(*others, **named):
            return function(entering.pop() if entering else residuals.fetch(residual), *others, **named)

        return _recompute_without_reentrant(run, _no_state, _no_state, preserve_rng_state, *others, **named)

    for module in {kind.__module__ for layer in model.sublayers(include_self=True) for kind in type(layer).__mro__}:
        if module.startswith("paddlenlp.") and hasattr(sys.modules[module], "recompute"):
            setattr(sys.modules[module], "recompute", recompute)  # noqa: B010  # of a module, which has no such type
    return residuals


def _no_state(*_):
    """Do nothing: Paddle's hooks are for a state beside its random generators, and there is none."""
