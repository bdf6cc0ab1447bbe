"""How many bytes are alive, by part, and the most there have been in each phase."""

from collections import Counter
from contextlib import contextmanager


class Memory:
    """granule: what the allocator rounds up to, bytes. peaks: by phase, the parts at its highest moment."""

    def __init__(self, granule: int = 1):
        self.granule = granule
        self.live = Counter()
        self.part = ""
        self.recording = True
        self.peaks: dict[str, dict[str, int]] = {}
        self._total = self._highest = 0
        self._is_highest = False
        self._phase = ""

    @contextmanager
    def of(self, part: str):
        """What is taken meanwhile belongs to this part, unless an outer one has been named."""
        before = self.part
        self.part = before or part
        try:
            yield
        finally:
            self.part = before

    @contextmanager
    def without_gradients(self):
        before, self.recording = self.recording, False
        try:
            yield
        finally:
            self.recording = before

    def begin(self, phase: str) -> None:
        """The peak until now belongs to the phase that ends; a phase that returns keeps its higher peak."""
        self._note()
        if self._phase:
            before = self.peaks.get(self._phase)
            if before is None or sum(before.values()) < self._highest:
                self.peaks[self._phase] = self._parts
        self._phase, self._highest, self._is_highest = phase, self._total, True

    def end(self) -> None:
        self.begin("")

    def take(self, part: str, size: int) -> int:
        """Count an allocation; gives what the allocator makes of its size."""
        size = -(-size // self.granule) * self.granule
        self.live[part] += size
        self._total += size
        if self._total > self._highest:
            self._highest, self._is_highest = self._total, True
        return size

    def give(self, part: str, size: int) -> None:
        if self._is_highest:
            self._note()
        self.live[part] -= size
        self._total -= size

    @property
    def total(self) -> int:
        return self._total

    def _note(self) -> None:
        """Keep the parts of the highest moment before it passes."""
        if self._is_highest:
            self._parts, self._is_highest = dict(self.live), False


class Storage:
    """Bytes of a tensor, alive while something refers to them."""

    __slots__ = ("memory", "part", "size")

    def __init__(self, memory: Memory, size: int, part: str = ""):
        self.memory = memory
        self.part = part or memory.part
        self.size = memory.take(self.part, size)

    def move(self, part: str) -> None:
        """Count it in another part."""
        self.memory.live[self.part] -= self.size
        self.memory.live[part] += self.size
        self.part = part

    def __del__(self):
        self.memory.give(self.part, self.size)
