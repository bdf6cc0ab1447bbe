"""How fast a run goes: time spent training, tokens per second, model FLOP utilisation, time left."""

import contextlib
import time
from dataclasses import dataclass

from launch.models.arithmetic import ModelShape


class TrainingClock:
    """Seconds spent in training steps; evaluation and saving are excluded by `paused`."""

    def __init__(self):
        self._lap_start = time.monotonic()
        self._paused = 0.0

    def lap(self) -> float:
        """Seconds of training since the last lap (or the start)."""
        now = time.monotonic()
        seconds = now - self._lap_start - self._paused
        self._lap_start, self._paused = now, 0.0
        return seconds

    @contextlib.contextmanager
    def paused(self):
        start = time.monotonic()
        try:
            yield
        finally:
            self._paused += time.monotonic() - start


@dataclass(frozen=True)
class Throughput:
    """What a token costs, and what the devices could do.

    sequence_length: of a sample, on average. peak_flops: of all devices together, in FLOP/s (1 TFLOP = 1e12), dense,
    in the dtype of training. frozen: whether the model's own weights get no gradients.
    """

    shape: ModelShape
    sequence_length: float
    peak_flops: float
    frozen: bool = False

    def measure(self, tokens: int, steps: int, seconds: float) -> dict:
        """tokens_per_second, step_seconds, mfu (6 N) and mfu_with_attention (6 N + 12 L h s) of some steps.

        tokens: that all data ranks together read in them.
        """
        tokens_per_second = tokens / seconds
        return {
            "tokens_per_second": tokens_per_second,
            "step_seconds": seconds / steps,
            "mfu": self._utilisation(tokens_per_second, attention=False),
            "mfu_with_attention": self._utilisation(tokens_per_second, attention=True),
        }

    def _utilisation(self, tokens_per_second: float, attention: bool) -> float:
        flops = self.shape.training_flops_per_token(self.sequence_length, attention, self.frozen)
        return tokens_per_second * flops / self.peak_flops
