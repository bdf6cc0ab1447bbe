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
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import paddle
from paddle.base import core

SLOT_BYTES = 256 * 1024  # larger tensors go in several pieces
NOTE_BYTES = 128
TOKEN_BYTES = 64  # by which the others see that they have opened what rank 0 has made

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
    """Return whether the ranks are processes of one machine, whose system can share memory without a name."""
    return os.environ.get("PADDLE_NNODES", "1") == "1" and hasattr(os, "memfd_create")


def reduces(tensor: paddle.Tensor, op: core.ReduceOp) -> bool:
    """Return whether shared memory reduces such a tensor."""
    return tensor.dtype in DTYPES and op in REDUCTIONS


class SharedMemory:
    """The memory of one group, and its collectives. All members make it, and call each collective, in the same order.

    Rank 0 of the group leads: it waits until all others have written what they give, combines it, and lets them go.
    Each rank has two slots and uses them in turn: one that is ahead of the others by a collective writes into its other
    slot while they still read the first; it cannot be ahead by two, as the second waits for all. Ranks are numbered in
    the group.

    Attributes:
        store: Where rank 0 says which of its descriptors the others shall open.
        name: Unique in the store.
        timeout: In seconds.
    """

    def __init__(self, name: str, rank: int, size: int, store: core.TCPStore, timeout: float):
        self.name, self.rank, self.size, self.timeout = name, rank, size, timeout
        bytes_each = SLOT_BYTES + NOTE_BYTES
        total = TOKEN_BYTES + 2 * size * bytes_each
        key = f"rehearsal/{name}/memory"
        self.waiting = select.poll()
        if rank == 0:
            memory = os.memfd_create("rehearsal")
            os.ftruncate(memory, total)
            pipes = [os.pipe() for _ in range(size)]
            token = os.urandom(TOKEN_BYTES)
            os.pwrite(memory, token, 0)
            store.set(key, json.dumps([os.getpid(), memory, pipes, token.hex()]))
            self.arrivals, self.departures = pipes[0][0], [end for _, end in pipes[1:]]
            self.others_ends = [pipes[0][1], *(end for end, _ in pipes[1:])]  # closed once the others have them
            self.waiting.register(self.arrivals, select.POLLIN)
        else:
            process, memory, pipes, token = json.loads(bytes(store.get(key)))
            memory = self._open_there(process, memory, os.O_RDWR)
            if os.pread(memory, TOKEN_BYTES, 0).hex() != token:
                raise self._unreachable()
            self.arrival = self._open_there(process, pipes[0][1], os.O_WRONLY)
            self.departure = self._open_there(process, pipes[rank][0], os.O_RDONLY)
            self.waiting.register(self.departure, select.POLLIN)
        self.map = mmap.mmap(memory, total)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        first = self.address + TOKEN_BYTES
        self.slots = [[first + (turn * size + rank) * bytes_each for rank in range(size)] for turn in (0, 1)]
        self.turn = 0

    def _open_there(self, process: int, descriptor: int, how: int) -> int:
        """Return a descriptor of rank 0's process."""
        try:
            return os.open(f"/proc/{process}/fd/{descriptor}", how)
        except OSError as error:
            raise self._unreachable() from error

    def _unreachable(self) -> RuntimeError:
        return RuntimeError(
            f"group {self.name}: rank 0 shares no memory with rank {self.rank}: it has ended, or they are on different "
            "machines, of which PADDLE_NNODES must tell how many there are"
        )

    def all_reduce(self, tensor: paddle.Tensor, op: core.ReduceOp) -> None:
        """Reduce the tensors of all ranks into each."""
        self._reduce(tensor, op, receivers=range(self.size))

    def reduce(self, tensor: paddle.Tensor, to: int, op: core.ReduceOp) -> None:
        """Reduce the tensors of all ranks into one; the others' tensors stay as they are."""
        self._reduce(tensor, op, receivers=(to,))

    def broadcast(self, tensor: paddle.Tensor, source: int) -> None:
        """Copy a rank's tensor to all ranks."""
        self._copy(tensor, source, receivers=range(self.size))

    def transfer(self, tensor: paddle.Tensor, source: int) -> None:
        """Copy a tensor from one of two ranks to the other."""
        self._copy(tensor, source, receivers=(1 - source,))

    def all_gather(self, outputs: list[paddle.Tensor], tensor: paddle.Tensor) -> None:
        """Gather the tensors of all ranks. outputs: one for each rank, of the tensor's shape and dtype."""
        for output in outputs:
            self._require_size(output, 1, tensor)
        self._gather(tensor, [_address(output) for output in outputs])

    def all_gather_into(self, output: paddle.Tensor, tensor: paddle.Tensor) -> None:
        """Gather the tensors of all ranks in `output`, one after the other."""
        self._require_size(output, self.size, tensor)
        first = _address(output)
        self._gather(tensor, [first + rank * _bytes(tensor) for rank in range(self.size)])

    def all_to_all(self, output: paddle.Tensor, tensor: paddle.Tensor) -> None:
        """Send each rank its part of `tensor`, of as many equal ones as there are; `output` gets those for this one."""
        self._require_size(output, 1, tensor)
        source, target, each = _address(tensor), _address(output), _bytes(tensor) // self.size
        room = SLOT_BYTES // self.size
        for start in range(0, each, room):
            slots, length = self._next(), min(room, each - start)
            for rank in range(self.size):
                ctypes.memmove(slots[self.rank] + rank * room, source + rank * each + start, length)
            self._meet(slots, f"all_to_all of {_size(tensor)}")
            for rank, slot in enumerate(slots):
                ctypes.memmove(target + rank * each + start, slot + self.rank * room, length)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._meet(self._next(), "barrier")

    def _require_size(self, output: paddle.Tensor, times: int, tensor: paddle.Tensor) -> None:
        if output.dtype != tensor.dtype or _bytes(output) != times * _bytes(tensor):
            raise ValueError(f"group {self.name}: {_size(output)} is no room for {times} x {_size(tensor)}")

    def _gather(self, tensor: paddle.Tensor, outputs: list[int]) -> None:
        address = _address(tensor)
        for start, length in _pieces(tensor):
            slots = self._next()
            ctypes.memmove(slots[self.rank], address + start, length)
            self._meet(slots, f"all_gather of {_size(tensor)}")
            for slot, output in zip(slots, outputs, strict=True):
                ctypes.memmove(output + start, slot, length)

    def _reduce(self, tensor: paddle.Tensor, op: core.ReduceOp, receivers: Sequence[int]) -> None:
        address = _address(tensor)
        to = f" to rank {receivers[0]}" if len(receivers) == 1 else ""
        dtype, combine = np.dtype(DTYPES[tensor.dtype]), REDUCTIONS[op]
        for start, length in _pieces(tensor):
            slots = self._next()

            def combined(slots=slots, count=length // dtype.itemsize) -> None:
                arrays = [np.frombuffer(self.map, dtype, count, slot - self.address) for slot in slots]
                with np.errstate(all="ignore"):
                    for array in arrays[1:]:  # in the order of the ranks: a run's sums are the same each time
                        combine(arrays[0], array, out=arrays[0])

            ctypes.memmove(slots[self.rank], address + start, length)
            self._meet(slots, f"{op.name} of {_size(tensor)}{to}", combined)
            if self.rank in receivers:
                ctypes.memmove(address + start, slots[0], length)

    def _copy(self, tensor: paddle.Tensor, source: int, receivers: Sequence[int]) -> None:
        address = _address(tensor)
        for start, length in _pieces(tensor):
            slots = self._next()
            if self.rank == source:
                ctypes.memmove(slots[source], address + start, length)
            self._meet(slots, f"{_size(tensor)} from rank {source}")
            if self.rank in receivers and self.rank != source:
                ctypes.memmove(address + start, slots[source], length)

    def _next(self) -> list[int]:
        """Return the addresses of all ranks' slots for this piece."""
        self.turn = 1 - self.turn
        return self.slots[self.turn]

    def _meet(self, slots: list[int], what: str, combine: Callable[[], None] | None = None) -> None:
        """Wait until all members have come here, and until rank 0 has combined what they gave."""
        note = what.encode()[:NOTE_BYTES].ljust(NOTE_BYTES)
        ctypes.memmove(slots[self.rank] + SLOT_BYTES, note, NOTE_BYTES)
        if self.rank:
            self._follow(what)
            return
        try:
            self._wait_for_all(what)
            for rank, slot in enumerate(slots):
                if (other := ctypes.string_at(slot + SLOT_BYTES, NOTE_BYTES)) != note:
                    raise RuntimeError(
                        f"group {self.name}: rank {rank} is in {other.decode().strip()}, rank 0 in {what}: "
                        "the ranks of a group must call the same collectives in the same order"
                    )
            if combine:
                combine()
        except BaseException:
            self._close(self.departures)  # or the others would wait
            raise
        for departure in self.departures:
            os.write(departure, b".")

    def _wait_for_all(self, what: str) -> None:
        """Block rank 0 until every other rank has arrived."""
        missing = self.size - 1
        while missing:
            events = dict(self.waiting.poll(self.timeout * 1000))
            if not events:
                raise RuntimeError(f"group {self.name}: not all ranks came to {what} in {self.timeout} s")
            for rank, departure in enumerate(self.departures, 1):
                if departure in events:
                    raise RuntimeError(f"group {self.name}: rank {rank} has ended before {what}")
            missing -= len(os.read(self.arrivals, missing))
        if self.others_ends:  # from now on an end of a pipe closes with the process that uses it
            self._close(self.others_ends)
            for departure in self.departures:
                self.waiting.register(departure, 0)

    def _follow(self, what: str) -> None:
        """Block another rank until rank 0 lets it go."""
        try:
            os.write(self.arrival, b".")
        except BrokenPipeError as error:
            raise self._left(what) from error
        if not self.waiting.poll(self.timeout * 1000):
            raise RuntimeError(f"group {self.name}: rank 0 did not end {what} in {self.timeout} s")
        if not os.read(self.departure, 1):
            raise self._left(what)

    def _left(self, what: str) -> RuntimeError:
        return RuntimeError(f"group {self.name}: rank 0 has failed or ended before the end of {what}")

    def _close(self, descriptors: list[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)
        descriptors.clear()


def _address(tensor: paddle.Tensor) -> int:
    if not tensor.is_contiguous():
        raise ValueError(f"a tensor of shape {list(tensor.shape)} does not lie in one piece, as a collective needs it")
    return tensor.data_ptr()


def _pieces(tensor: paddle.Tensor) -> Iterator[tuple[int, int]]:
    """Yield (start, length) in bytes of the parts that fit a slot; one part of no bytes for an empty tensor."""
    total = _bytes(tensor)
    for start in range(0, max(total, 1), SLOT_BYTES):
        yield start, min(SLOT_BYTES, total - start)


def _bytes(tensor: paddle.Tensor) -> int:
    return math.prod(tensor.shape) * tensor.element_size()  # tensor.size runs an operator


def _size(tensor: paddle.Tensor) -> str:
    return f"{math.prod(tensor.shape)} {str(tensor.dtype).removeprefix('paddle.')}"
