"""One thread that answers rows from a bounded queue: between two steps of its batch it takes those that have room.

Where a step fails, each of its rows goes on alone. Where a row cannot be taken, it fails alone. Where the thread itself
ends, all rows fail, and so does the server.
"""

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

from launch.serving.request import Finish, Row
from launch.serving.whole_batches import Batch


class QueueFull(Exception):
    """The queue has no room for another request."""


class GenerationEngine:
    """A thread that generates.

    Attributes:
        places: Of rows in the queue.
        on_step: Called with the number of rows of each step.
        on_start: Called in the thread, before everything else.
        on_failure: Called where the thread ends although nobody has stopped it.
    """

    def __init__(self, batch: Batch, places: int, on_step: Callable[[int], object] = lambda rows: None):
        self.batch = batch
        self.places = places
        self.on_step = on_step
        self.on_start: Callable[[], object] = lambda: None
        self.on_failure: Callable[[], object] = lambda: None
        self.failed = False
        self.began: float | None = None  # the step in work, as time.monotonic()
        self.waiting: deque[Row] = deque()
        self.stopping = False
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    @property
    def ended(self) -> bool:
        """Whether the thread was started and is no more."""
        return self.thread.ident is not None and not self.thread.is_alive()

    def step_seconds(self) -> float:
        """Return how long the current step has lasted, in seconds; 0 where there is none."""
        began = self.began
        return 0.0 if began is None else time.monotonic() - began

    def submit(self, rows: list[Row]) -> None:
        """Put all rows of a request into the queue.

        Raises:
            QueueFull: If there is no room for all of them.
        """
        with self.changed:
            self._remove_done()
            if self.failed:
                return _fail(rows)
            if len(self.waiting) + len(rows) > self.places:
                raise QueueFull(f"{len(self.waiting)} of {self.places} places of the queue are taken")
            self.waiting.extend(rows)
            self.changed.notify_all()

    def depth(self) -> int:
        """Return the number of waiting rows."""
        with self.changed:
            self._remove_done()
            return len(self.waiting)

    def stop(self, seconds: float) -> None:
        """End the thread. Rows that are not done are cancelled; rows in a batch end with their next token."""
        with self.changed:
            self.stopping = True
            for row in (*self.waiting, *self.batch.rows):
                row.cancel()
            self.changed.notify_all()
        self.thread.join(seconds)

    def _work(self) -> None:
        try:
            self.on_start()
            while self._take():
                self._step()
        finally:
            if not self.stopping:
                with self.changed:
                    self.failed = True
                    _fail([*self.waiting, *self.batch.rows])
                self.on_failure()

    def _take(self) -> bool:
        """Wait until there are rows in work; False when the engine stops."""
        with self.changed:
            while not self.stopping:
                if not self.waiting and not self.batch.rows:
                    self.changed.wait_for(lambda: self.waiting or self.stopping)
                    self.changed.wait_for(lambda: self.stopping, self.batch.gathers)
                self._remove_done()
                try:
                    taken = set(self.batch.take(self.waiting))
                    self.waiting = deque(row for row in self.waiting if row not in taken)
                except Exception:
                    self._give_back()
                if self.batch.rows:
                    return True
            return False

    def _give_back(self) -> None:
        """Let the row fail that could not be taken.

        Rows of the batch are taken again, with the tokens that they have.
        """
        traceback.print_exc(file=sys.stderr)
        working = self.batch.rows
        waiting = [row for row in self.waiting if row not in working]
        failed = (waiting or working)[:1]
        self.batch.clear()
        self.waiting = deque(row for row in [*working, *waiting] if row not in failed)
        for row in failed:
            row.finish(Finish.FAILED)

    def _step(self) -> None:
        rows, left = self.batch.rows, []
        self.began = time.monotonic()
        try:
            self.on_step(len(rows))
            self.batch.step()
        except Exception:  # a row that fails must end neither the server nor the other rows
            traceback.print_exc(file=sys.stderr)
            self.batch.clear()
            left = [row for row in rows if not row.done]
        finally:
            self.began = None
        try:
            for row in left:
                if len(rows) > 1 and not self.stopping:
                    self._answer_alone(row)
                row.finish(Finish.FAILED)
        finally:
            _fail(left)

    def _answer_alone(self, row: Row) -> None:
        try:
            self.batch.take([row])
        except Exception:
            traceback.print_exc(file=sys.stderr)
            self.batch.clear()
        while self.batch.rows:
            self._step()

    def _remove_done(self) -> None:
        """Remove rows whose clients are gone or whose time is over."""
        now = time.monotonic()
        for row in self.waiting:
            if now > row.deadline:
                row.finish(Finish.LATE)
        self.waiting = deque(row for row in self.waiting if not row.done)


def _fail(rows: list[Row]) -> None:
    """Let the rows fail that are not done."""
    for row in rows:
        row.finish(Finish.FAILED)
