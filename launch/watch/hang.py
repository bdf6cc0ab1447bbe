"""Does the run still move? A rank that makes no step for many times the usual shows where it is, and ends.

A hung collective holds the interpreter, so nothing here needs it: faulthandler writes the stacks of all threads from
a thread of its own, into the rank's log, and the kernel's timer ends the process some seconds later, when the other
ranks have written theirs. Exit code: that of SIGALRM, launch.processes.logs.HUNG. No Paddle here.
"""

import contextlib
import faulthandler
import signal
import time
from collections import deque
from statistics import median

STDERR = 2
REMEMBERED = 50  # steps whose median is the usual
ENOUGH = 3
FIRST_STEPS = 6  # times the least limit: until enough steps are known; the first ones also set up what the rest use
SECONDS_TO_WRITE = 5.0  # between a rank's stacks and its end: for the other ranks, whose timers run out about then


class HangTimer:
    """factor: times the median step; seconds: the limit is never less. factor 0: nothing is watched."""

    def __init__(self, factor: float, seconds: float, seconds_to_write: float = SECONDS_TO_WRITE):
        self.factor = factor
        self.seconds = seconds
        self.seconds_to_write = seconds_to_write
        self._steps = deque(maxlen=REMEMBERED)
        self._step_start = None
        self._armed = False

    @property
    def limit(self) -> float:
        """Seconds without a step after which a rank counts as hung."""
        if len(self._steps) < ENOUGH:
            return FIRST_STEPS * self.seconds
        return max(self.seconds, self.factor * median(self._steps))

    def start(self) -> None:
        self._armed = self.factor > 0
        self.moved()

    def stop(self) -> None:
        self._armed = False
        _disarm()

    def step_done(self) -> None:
        now = time.monotonic()
        if self._step_start is not None:
            self._steps.append(now - self._step_start)
        self._step_start = now
        self.moved()

    def moved(self) -> None:
        """Something short of a step was done: a micro batch, a batch of an evaluation, a piece of a checkpoint."""
        if self._armed:
            faulthandler.dump_traceback_later(self.limit, file=STDERR)
            signal.setitimer(signal.ITIMER_REAL, self.limit + self.seconds_to_write)

    @contextlib.contextmanager
    def beside_steps(self):
        """While something else goes on that tells its moves, such as saving; the step it is part of is not measured."""
        armed = self._armed
        self.start()
        try:
            yield
        finally:
            self._step_start = None
            if armed:
                self.moved()
            else:
                self.stop()


def _disarm() -> None:
    faulthandler.cancel_dump_traceback_later()
    signal.setitimer(signal.ITIMER_REAL, 0)
