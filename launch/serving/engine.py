"""One thread that answers rows batch by batch, fed from a bounded queue.

Rows that wait together go together: the first one, and those behind it of the same group, up to the size of a batch,
and as far as the longest prompt, to which all are padded, and the longest answer fit into the model's positions. The
next batch begins when the last row of this one has ended. Where a batch fails, each of its rows goes on alone.
"""

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

from launch.serving.request import Finish, Row

GATHERING_SECONDS = 0.005  # how long the first row of an idle engine waits for others that come with it


class QueueFull(Exception):
    """There is no room for another request."""


class Engine:
    """answer(rows) answers a batch: it calls put() of each row until all are done. largest_batch, places: in rows."""

    def __init__(self, answer: Callable[[list[Row]], None], largest_batch: int, places: int):
        self.answer = answer
        self.largest_batch = largest_batch
        self.places = places
        self.waiting: deque[Row] = deque()
        self.running: list[Row] = []
        self.stopping = False
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def submit(self, rows: list[Row]) -> None:
        """Put all rows of a request into the queue. Raises QueueFull where there is no room for all of them."""
        with self.changed:
            self._forget_done()
            if len(self.waiting) + len(rows) > self.places:
                raise QueueFull(f"{len(self.waiting)} of {self.places} places of the queue are taken")
            self.waiting.extend(rows)
            self.changed.notify_all()

    def depth(self) -> int:
        """Rows that wait."""
        with self.changed:
            self._forget_done()
            return len(self.waiting)

    def stop(self, seconds: float) -> None:
        """End the thread: rows that are not done are cancelled, the batch in work ends with its next token."""
        with self.changed:
            self.stopping = True
            for row in (*self.waiting, *self.running):
                row.cancel()
            self.changed.notify_all()
        self.thread.join(seconds)

    def _work(self) -> None:
        while rows := self._next_batch():
            self.running = rows
            self._answer(rows)
            self.running = []

    def _answer(self, rows: list[Row]) -> None:
        try:
            self.answer(rows)
        except Exception:  # neither the server nor the other rows must end with one that fails
            traceback.print_exc(file=sys.stderr)
        left = [row for row in rows if not row.done]
        for row in left:
            if len(rows) > 1 and not self.stopping:
                self._answer([row])
            row.finish(Finish.FAILED)

    def _next_batch(self) -> list[Row]:
        """Rows of one group; none when the engine stops."""
        with self.changed:
            while not self.stopping:
                if not self.waiting:
                    self.changed.wait_for(lambda: self.waiting or self.stopping)
                    self.changed.wait_for(self._is_full, GATHERING_SECONDS)
                self._forget_done()
                if self.waiting:
                    return self._taken()
            return []

    def _taken(self) -> list[Row]:
        group = self.waiting[0].group
        rows, prompt, answer = [], 0, 0
        for row in self.waiting:
            padded, longest = max(prompt, len(row.prompt)), max(answer, row.max_tokens)
            fits = not rows or padded + longest <= row.positions and len(rows) < self.largest_batch
            if row.group == group and fits:
                rows.append(row)
                prompt, answer = padded, longest
        self.waiting = deque(row for row in self.waiting if row not in rows)
        return rows

    def _is_full(self) -> bool:
        return self.stopping or len(self.waiting) >= self.largest_batch

    def _forget_done(self) -> None:
        """Rows whose clients went away, or that have waited for too long, leave the queue."""
        now = time.monotonic()
        for row in self.waiting:
            if now > row.deadline:
                row.finish(Finish.LATE)
        self.waiting = deque(row for row in self.waiting if not row.done)
