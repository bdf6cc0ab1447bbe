"""How many bytes are alive, by part, and the most there are in each phase.

Lifetimes are explicit: bytes are alive from the moment at which they are taken to the last moment at which `alive`
names them. The peaks are computed at the end, from these moments alone. When Python frees an object changes nothing.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Storage:
    """Bytes of a tensor. part: what they are counted as. last: the last moment at which they are alive."""

    __slots__ = ("part", "size", "last")

    def __init__(self, part: str, size: int, moment: int):
        self.part, self.size, self.last = part, size, moment


class Memory:
    """granule: what the allocator rounds up to, bytes. part: what is taken now belongs to it. recording: whether
    operators get gradient nodes.

    A moment is the number of an event: bytes that are taken, bytes that change their part, a phase that begins.
    """

    def __init__(self, granule: int = 1):
        self.granule = granule
        self.part = ""
        self.recording = True
        self._events: list[str | list[tuple[str, int]]] = []  # the name of a phase, or changes of parts in bytes
        self._taken: list[Storage] = []

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """What is taken meanwhile belongs to this part, unless an outer one has been named."""
        before = self.part
        self.part = before or part
        try:
            yield
        finally:
            self.part = before

    @contextmanager
    def without_gradients(self) -> Iterator[None]:
        before, self.recording = self.recording, False
        try:
            yield
        finally:
            self.recording = before

    def begin(self, phase: str) -> None:
        self._events.append(phase)

    def take(self, size: int, part: str = "") -> Storage:
        """Bytes that are alive now, and until the last call of `alive` with them."""
        size = -(-size // self.granule) * self.granule
        storage = Storage(part or self.part, size, len(self._events))
        self._events.append([(storage.part, size)])
        self._taken.append(storage)
        return storage

    def alive(self, *storages: Storage | None) -> None:
        """These are alive at this moment. None stands for what is counted elsewhere, such as a weight."""
        now = len(self._events) - 1
        for storage in storages:
            if storage is not None:
                storage.last = now

    def move(self, storage: Storage, part: str) -> None:
        """Count it in another part from now on."""
        self._events.append([(storage.part, -storage.size), (part, storage.size)])
        storage.part = part
        self.alive(storage)

    def peaks(self) -> dict[str, dict[str, int]]:
        """By phase, the bytes of each part at its highest moment. A phase that returns keeps its higher peak."""
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
                for part, change in event:
                    live[part] += change
                    total += change
                if total > highest:
                    highest, is_highest = total, True
            for storage in ends.get(moment, ()):
                if is_highest:  # the parts are noted before the highest moment passes
                    at_highest, is_highest = dict(live), False
                live[storage.part] -= storage.size
                total -= storage.size
        return peaks
