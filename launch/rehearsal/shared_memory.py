"""Collectives of the ranks of one machine, through memory that they share.

gloo passes each message to a thread of its own and over TCP: where eight ranks share two cores, one all-reduce takes
longer than the step of a tiny model (benchmarks/rehearsal_collectives.py). Here the ranks of a group map one piece of
memory, and wait for each other at pipes.
"""

import ctypes
import json
import math
import mmap
import os
import select
from collections.abc import Callable, Collection, Iterator

import numpy as np
import paddle
from paddle.base import core

SLOT_BYTES = 256 * 1024  # larger tensors go in several pieces
NOTE_BYTES = 128

REDUCTIONS = {
    core.ReduceOp.SUM: np.add,
    core.ReduceOp.PRODUCT: np.multiply,
    core.ReduceOp.MAX: np.maximum,
    core.ReduceOp.MIN: np.minimum,
}
DTYPES = {
    paddle.float32: np.float32,
    paddle.float64: np.float64,
    paddle.int32: np.int32,
    paddle.int64: np.int64,
}


def available() -> bool:
    """Whether the ranks are processes of one machine, whose system can share memory that has no name."""
    return os.environ.get("PADDLE_NNODES", "1") == "1" and hasattr(os, "memfd_create")


def reduces(tensor: paddle.Tensor, op: core.ReduceOp) -> bool:
    return tensor.dtype in DTYPES and op in REDUCTIONS


class SharedMemory:
    """The memory of one group, and its collectives. All members make it, and call each collective, in the same order.

    Rank 0 of the group leads: it waits until all others have written what they give, combines it, and lets them go.
    Each rank has two slots and uses them in turn: one that is ahead of the others by a collective writes into its
    other slot while they still read the first; it cannot be ahead by two, as the second waits for all.

    store: where rank 0 says which of its descriptors the others shall open; name: unique in it; timeout: in seconds.
    """

    def __init__(self, name: str, rank: int, size: int, store: core.TCPStore, timeout: float):
        self.name, self.rank, self.size, self.timeout = name, rank, size, timeout
        bytes_each = SLOT_BYTES + NOTE_BYTES
        key = f"rehearsal/{name}/memory"
        if rank == 0:
            memory = os.memfd_create("rehearsal")
            os.ftruncate(memory, 2 * size * bytes_each)
            pipes = [os.pipe() for _ in range(size)]
            store.set(key, json.dumps([os.getpid(), memory, pipes]))
            self.arrivals, self.departures = pipes[0][0], [end for _, end in pipes[1:]]
        else:
            process, memory, pipes = json.loads(bytes(store.get(key)))

            def open_there(descriptor: int, how: int) -> int:
                return os.open(f"/proc/{process}/fd/{descriptor}", how)

            memory = open_there(memory, os.O_RDWR)
            self.arrival, self.departure = open_there(pipes[0][1], os.O_WRONLY), open_there(pipes[rank][0], os.O_RDONLY)
        self.map = mmap.mmap(memory, 2 * size * bytes_each)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.slots = [[self.address + (turn * size + rank) * bytes_each for rank in range(size)] for turn in (0, 1)]
        self.turn = 0
        self.waiting = select.poll()
        self.waiting.register(self.arrivals if rank == 0 else self.departure, select.POLLIN)

    def all_reduce(self, tensor: paddle.Tensor, op: core.ReduceOp) -> None:
        self._reduce(tensor, op, receivers=range(self.size))

    def reduce(self, tensor: paddle.Tensor, to: int, op: core.ReduceOp) -> None:
        """The tensors of the other ranks stay as they are."""
        self._reduce(tensor, op, receivers=(to,))

    def broadcast(self, tensor: paddle.Tensor, source: int) -> None:
        self._copy(tensor, source, receivers=range(self.size))

    def transfer(self, tensor: paddle.Tensor, source: int) -> None:
        """From one of two ranks to the other."""
        self._copy(tensor, source, receivers=(1 - source,))

    def all_gather(self, outputs: list[paddle.Tensor], tensor: paddle.Tensor) -> None:
        """outputs: one for each rank, of the tensor's shape and dtype."""
        self._gather(tensor, [_address(output) for output in outputs])

    def all_gather_into(self, output: paddle.Tensor, tensor: paddle.Tensor) -> None:
        """output: the tensors of all ranks, one after the other."""
        first = _address(output)
        self._gather(tensor, [first + rank * _bytes(tensor) for rank in range(self.size)])

    def barrier(self) -> None:
        self._meet(self._next(), "barrier")

    def _gather(self, tensor: paddle.Tensor, outputs: list[int]) -> None:
        address = _address(tensor)
        for start, length in _pieces(tensor):
            slots = self._next()
            ctypes.memmove(slots[self.rank], address + start, length)
            self._meet(slots, f"all_gather of {_size(tensor)}")
            for slot, output in zip(slots, outputs, strict=True):
                ctypes.memmove(output + start, slot, length)

    def _reduce(self, tensor: paddle.Tensor, op: core.ReduceOp, receivers: Collection[int]) -> None:
        address = _address(tensor)
        dtype, combine = np.dtype(DTYPES[tensor.dtype]), REDUCTIONS[op]
        for start, length in _pieces(tensor):
            slots = self._next()

            def combined(slots=slots, count=length // dtype.itemsize) -> None:
                arrays = [np.frombuffer(self.map, dtype, count, slot - self.address) for slot in slots]
                for array in arrays[1:]:  # in the order of the ranks: a run's sums are the same each time
                    combine(arrays[0], array, out=arrays[0])

            ctypes.memmove(slots[self.rank], address + start, length)
            self._meet(slots, f"{op.name} of {_size(tensor)}", combined)
            if self.rank in receivers:
                ctypes.memmove(address + start, slots[0], length)

    def _copy(self, tensor: paddle.Tensor, source: int, receivers: Collection[int]) -> None:
        address = _address(tensor)
        for start, length in _pieces(tensor):
            slots = self._next()
            if self.rank == source:
                ctypes.memmove(slots[source], address + start, length)
            self._meet(slots, f"{_size(tensor)} from rank {source}")
            if self.rank in receivers and self.rank != source:
                ctypes.memmove(address + start, slots[source], length)

    def _next(self) -> list[int]:
        """The addresses of all ranks' slots for this piece."""
        self.turn = 1 - self.turn
        return self.slots[self.turn]

    def _meet(self, slots: list[int], what: str, combine: Callable[[], None] | None = None) -> None:
        """Wait until all members have come here, and until rank 0 has combined what they gave."""
        note = what.encode()[:NOTE_BYTES].ljust(NOTE_BYTES)
        ctypes.memmove(slots[self.rank] + SLOT_BYTES, note, NOTE_BYTES)
        if self.rank:
            os.write(self.arrival, b".")
            self._wait(self.departure, 1, what)
            return
        self._wait(self.arrivals, self.size - 1, what)
        for rank, slot in enumerate(slots):
            if (other := ctypes.string_at(slot + SLOT_BYTES, NOTE_BYTES)) != note:
                raise RuntimeError(
                    f"group {self.name}: rank {rank} is in {other.decode().strip()}, rank 0 in {what}: "
                    "the ranks of a group must call the same collectives in the same order"
                )
        if combine:
            combine()
        for departure in self.departures:
            os.write(departure, b".")

    def _wait(self, pipe: int, count: int, what: str) -> None:
        while count:
            if not self.waiting.poll(self.timeout * 1000):
                raise RuntimeError(f"group {self.name}: {count} ranks did not come to {what} in {self.timeout} s")
            received = len(os.read(pipe, count))
            if not received:
                raise RuntimeError(f"group {self.name}: rank 0 has ended before {what}")
            count -= received


def _address(tensor: paddle.Tensor) -> int:
    if not tensor.is_contiguous():
        raise ValueError(f"a tensor of shape {list(tensor.shape)} does not lie in one piece, as a collective needs it")
    return tensor.data_ptr()


def _pieces(tensor: paddle.Tensor) -> Iterator[tuple[int, int]]:
    """(start, length) in bytes of what fits a slot; one piece of no bytes for a tensor of none."""
    total = _bytes(tensor)
    for start in range(0, max(total, 1), SLOT_BYTES):
        yield start, min(SLOT_BYTES, total - start)


def _bytes(tensor: paddle.Tensor) -> int:
    return math.prod(tensor.shape) * tensor.element_size()  # tensor.size runs an operator


def _size(tensor: paddle.Tensor) -> str:
    return f"{math.prod(tensor.shape)} x {tensor.element_size()} bytes"
