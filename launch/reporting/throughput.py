"""How fast a run goes: time spent training, tokens per second, model FLOP utilization, time left."""

import contextlib
import time
from dataclasses import dataclass

from launch.families.arithmetic import ModelShape


class TrainingClock:
    """Seconds spent in training steps; evaluation and saving are excluded by `paused`.

    Attributes:
        data_seconds: Of the last whole lap, spent waiting for batches (`waiting_for_data`).
    """

    def __init__(self):
        self._lap_start = time.monotonic()
        self._paused = self._waited = self.data_seconds = 0.0

    def lap(self) -> float:
        """Return the seconds of training since the last lap (or the start)."""
        now = time.monotonic()
        seconds = now - self._lap_start - self._paused
        self.data_seconds = self._waited
        self._lap_start, self._paused, self._waited = now, 0.0, 0.0
        return seconds

    @contextlib.contextmanager
    def paused(self):
        """Leave the block out of the time of training."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._paused += time.monotonic() - start

    @contextlib.contextmanager
    def waiting_for_data(self):
        """Count the block as waiting for data."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._waited += time.monotonic() - start


class TimedLoader:
    """A loader whose batches a clock waits for."""

    def __init__(self, loader, clock: TrainingClock):
        self.loader = loader
        self.clock = clock

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self):
        batches = iter(self.loader)
        while True:
            with self.clock.waiting_for_data():
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch


@dataclass(frozen=True)
class Throughput:
    """The cost of a token, and the rate of the devices.

    Attributes:
        sequence_length: Of a sample, on average.
        peak_flops: Of all devices together, in FLOP/s (1 TFLOP = 1e12), dense, in the dtype of training.
        frozen: Whether the model's own weights get no gradients.
        note: A line about peak_flops, "" where there is none.
    """

    shape: ModelShape
    sequence_length: float
    peak_flops: float
    frozen: bool = False
    note: str = ""

    def measure(self, tokens: int, steps: int, seconds: float) -> dict:
        """Return tokens_per_second, step_seconds, mfu (6 N) and mfu_with_attention (6 N + 12 L h s) of some steps.

        Args:
            tokens: Read by all data ranks together in these steps.
            steps: Their number.
            seconds: Their time.
        """
        tokens_per_second = tokens / seconds
        return {
            "tokens_per_second": tokens_per_second,
            "step_seconds": seconds / steps,
            "mfu": self._utilization(tokens_per_second, attention=False),
            "mfu_with_attention": self._utilization(tokens_per_second, attention=True),
        }

    def _utilization(self, tokens_per_second: float, attention: bool) -> float:
        flops = self.shape.training_flops_per_token(self.sequence_length, attention, self.frozen)
        return tokens_per_second * flops / self.peak_flops
