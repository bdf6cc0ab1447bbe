"""Host memory, and the copies between it and the device."""

from collections.abc import Iterable
from contextlib import contextmanager
from functools import cache

import numpy as np
import paddle
from paddle.base import core

from launch.checkpoint.stored_tensor import numpy_dtype

Tensor = paddle.Tensor


class HostMemory:
    """Tensors whose values are in host memory between their uses.

        host.keep(moment)                       # its device memory is free now
        with host.on_device(write=[moment]):    # here it has device memory again
            update(moment)

    A tensor remains the same object, because optimizers and layers refer to it. Tensors are found by their address, so
    one that shares the memory of a kept tensor is kept, too.
    """

    def __init__(self):
        self._lane = Lane()
        self._kept: dict[int, Tensor] = {}  # by address
        self._ahead: dict[int, tuple] = {}  # (device tensor, event) of copies begun early, by address in the host

    @property
    def nbytes(self) -> int:
        """Bytes in the host."""
        return sum(int(np.prod(tensor.shape)) * tensor.element_size() for tensor in self._kept.values())

    def holds(self, tensor: Tensor) -> bool:
        """Return whether a tensor is in the host."""
        return tensor._is_initialized() and tensor.data_ptr() in self._kept

    def keep(self, tensor: Tensor) -> None:
        """Move a tensor to the host, where it is not there yet."""
        if self.holds(tensor):
            return
        host = in_host_memory(tensor)
        self._kept[host.data_ptr()] = host
        host._share_buffer_to(tensor)

    def take_back(self, tensor: Tensor) -> None:
        """Move a tensor back to the device."""
        if self.holds(tensor):
            device = self.copy_of(tensor)
            self.forget(tensor)
            device._share_buffer_to(tensor)

    def forget(self, tensor: Tensor) -> None:
        """Release the host memory as soon as nothing else uses it; the tensor must not be used any more."""
        self._kept.pop(tensor.data_ptr(), None)

    def copy_of(self, tensor: Tensor) -> Tensor:
        """Return a copy on the device of a tensor in the host."""
        device, copied = self._begin(self._kept[tensor.data_ptr()])
        self._lane.wait(copied)
        return device

    def prefetch(self, tensors: Iterable[Tensor]) -> None:
        """Start the copies that on_device will need next."""
        for tensor in tensors:
            if self.holds(tensor):
                self._ahead[tensor.data_ptr()] = self._begin(self._kept[tensor.data_ptr()])

    @contextmanager
    def on_device(self, read: Iterable[Tensor] = (), write: Iterable[Tensor] = ()):
        """Give tensors in the host device memory within the block; `write` tensors are copied back at its end."""
        loaded = [self._load(tensor) for tensor in read if self.holds(tensor)]
        changed = [self._load(tensor) for tensor in write if self.holds(tensor)]
        yield
        for tensor, host in changed:
            self._lane.copy(host, tensor.detach())
        for tensor, host in loaded + changed:
            host._share_buffer_to(tensor)

    def settle(self) -> None:
        """Wait until all copies to the host have finished."""
        self._lane.settle()

    def _load(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Return (the tensor, on the device now; its host memory)."""
        host = self._kept[tensor.data_ptr()]
        device, copied = self._ahead.pop(tensor.data_ptr(), None) or self._begin(host)
        self._lane.wait(copied)
        device._share_buffer_to(tensor)
        return tensor, host

    def _begin(self, host: Tensor) -> tuple:
        device = paddle.empty(host.shape, host.dtype)
        return device, self._lane.copy(device, host)


@cache
def host_memory() -> HostMemory:
    """Return the host memory of this process: the model is read into it before there is a Trainer."""
    return HostMemory()


class KeptTensors(dict):
    """A dictionary that moves its tensors to the host, except tensors of one element."""

    def __init__(self, host: HostMemory):
        super().__init__()
        self.host = host

    def __setitem__(self, key, tensor: Tensor) -> None:
        if tensor.size > 1:
            self.host.keep(tensor)
        super().__setitem__(key, tensor)


class Lane:
    """A GPU's stream for copies, beside the computing stream. On a CPU a copy is done when it returns.

    The computing stream allocates and frees the device memory of copies: it waits for a copy before it reads the
    result, and before the source is freed. The allocator of host memory knows no streams and may reuse memory at
    once: tensors in the host are kept here until their copy is done.
    """

    def __init__(self):
        on_gpu = paddle.framework._current_expected_place().is_gpu_place()
        self._stream = paddle.device.Stream() if on_gpu else None
        self._leaving: list[tuple] = []  # (event, the tensors of the last copy)
        self._busy: list[tuple] = []  # (event, the tensor in the host) of all copies that are not done

    def copy(self, target: Tensor, source: Tensor):
        """Copy after the work of the computing stream so far. Returns the event of its end, None on a CPU."""
        if self._stream is None:
            target.copy_(source, True)  # pyright: ignore[reportCallIssue]  # Paddle's stub has no arguments
            return None
        for event, _ in self._leaving:
            self.wait(event)
        self._stream.wait_stream(paddle.device.current_stream())
        with paddle.device.stream_guard(self._stream):
            target.copy_(source, False)  # pyright: ignore[reportCallIssue]  # Paddle's stub has no arguments
            event = self._stream.record_event()
        self._leaving = [(event, (target, source))]
        host = source if source.place.is_cuda_pinned_place() else target
        self._busy = [copy for copy in self._busy if not copy[0].query()] + [(event, host)]
        return event

    def wait(self, event) -> None:
        """Let the computation wait for a copy."""
        if event is not None:
            paddle.device.current_stream().wait_event(event)

    def settle(self) -> None:
        """Wait for all copies."""
        if self._stream is not None:
            self._stream.synchronize()
            self._leaving, self._busy = [], []


def in_host_memory(tensor: Tensor) -> Tensor:
    """Return a copy, page-locked for a GPU, in NumPy's memory for a CPU."""
    if tensor.place.is_gpu_place():
        return tensor._copy_to(core.CUDAPinnedPlace(), True)
    dtype = numpy_dtype(str(tensor.dtype).removeprefix("paddle."))
    host = core.eager.Tensor(
        value=np.empty(tensor.shape, dtype),
        place=core.CPUPlace(),
        persistable=False,
        zero_copy=True,
        name=f"{tensor.name}@host",
        stop_gradient=True,
    )
    host.copy_(tensor, True)  # pyright: ignore[reportCallIssue]  # Paddle's stub has no arguments
    return host
