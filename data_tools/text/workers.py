"""One function in several processes: tasks go out one by one, results come back in the order of the tasks.

Each worker has a pipe of its own and ends when that pipe closes, so none outlives a parent that is killed. Workers are
forked when the pool is made, before it starts threads: the function needs no pickling, and what it holds (a tokenizer)
is in memory once.
"""

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from data_tools.children import close_in_children, end_process
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural

RESULTS_A_WORKER = 4  # that a measurement of the speed waits for
AS_FAST = 0.9


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_most_cores(count: int | None) -> int | None:
    """Return a flag's number of workers, at most the number of cores: more would only take memory.

    A lower number is printed.
    """
    cores = available_cores()
    if count is None or count <= cores:
        return count
    print(f"--workers {count}: this process may use {plural(cores, 'core')}; {cores} work", file=sys.stderr)
    return cores


class Workers:
    """Processes that apply `function` to tasks, which have a `size` in bytes.

    `active` says how many work, `speeds` the bytes a second of each number tried.

    Attributes:
        count: How many; 0 is this very process; None is as many as help: one for each core begins, then half of
            them pause while the others are measured, and stay away where the rest do as much alone (cores that are
            lent to others, or are halves of one).
    """

    def __init__(self, function: Callable, count: int | None = None):
        self._function = function
        self._tuning = count is None
        self.active = available_cores() if count is None else count
        self.speeds: dict[int, float] = {}
        self._window: list[tuple[int, float]] = []
        self._lock = threading.Lock()
        self._idle: queue.SimpleQueue = queue.SimpleQueue()
        self._paused: list[_Worker] = []
        self._workers: list[_Worker] = []
        for number in range(self.active):
            self._workers.append(_Worker(number, function))
            self._idle.put(self._workers[-1])

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception) -> None:
        for worker in self._workers:
            worker.close()

    def in_order(self, tasks: Iterable) -> Iterator[tuple]:
        """Yield (task, result) of each task. Tasks are taken as they are needed, few ahead of the results.

        Raises any exception of the function; DataError when a worker dies.
        """
        if not self._workers:
            yield from ((task, self._function(task)) for task in tasks)
            return
        waiting = deque()
        threads = ThreadPoolExecutor(len(self._workers))
        try:
            for task in tasks:
                waiting.append((task, threads.submit(self._ask, task)))
                while len(waiting) > 2 * self.active:
                    yield self._first(waiting)
            while waiting:
                yield self._first(waiting)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    def _first(self, waiting: deque) -> tuple:
        task, future = waiting.popleft()
        active, seconds, result = future.result()
        if self._tuning and active == self.active:
            self._measured(task.size, seconds)
        return task, result

    def _ask(self, task) -> tuple:
        worker = self._idle.get()
        active = self.active
        try:
            return active, *worker.ask(task)
        finally:
            with self._lock:
                self._idle.put(worker) if worker.number < self.active else self._paused.append(worker)

    def _measured(self, size: int, seconds: float) -> None:
        self._window.append((size, seconds))
        if len(self._window) < RESULTS_A_WORKER * self.active:
            return
        sizes, times = map(sum, zip(*self._window, strict=True))
        self._window = []
        speed = self.active * sizes / times
        fewer_do = all(speed >= AS_FAST * more for more in self.speeds.values())
        self.speeds[self.active] = speed
        if fewer_do and self.active > 1:
            self._set_active(self.active // 2)
            return
        self._tuning = False
        if not fewer_do:
            self._set_active(list(self.speeds)[-2])

    def _set_active(self, count: int) -> None:
        with self._lock:
            self.active = count
            waking = [worker for worker in self._paused if worker.number < count]
            self._paused = [worker for worker in self._paused if worker.number >= count]
        for worker in waking:
            self._idle.put(worker)


class _Worker:
    """A process and the pipe to it."""

    def __init__(self, number: int, function: Callable):
        context = multiprocessing.get_context("fork")
        self.number = number
        self._pipe, theirs = context.Pipe()
        close_in_children(self._pipe)
        self._process = context.Process(target=_serve, args=(function, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, task) -> tuple[float, object]:
        """Return (seconds it took, result) of one task."""
        try:
            self._pipe.send(task)
            seconds, result, error = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(1)
            raise DataError(
                f"a worker process was ended from outside (exit code {self._process.exitcode}), most often for want "
                "of memory. Give fewer: --workers N."
            ) from None
        if error is not None:
            raise error
        return seconds, result

    def close(self) -> None:
        """End the worker at once, also amid a task: it has nothing that could be lost."""
        self._process.kill()
        end_process(self._process, "a worker")
        self._pipe.close()


def _serve(function: Callable, pipe) -> None:
    """Answer tasks from the pipe until its other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    while True:
        try:
            task = pipe.recv()
            start = time.perf_counter()
            result, error = function(task), None
        except EOFError:
            return
        except DataError as raised:
            result, error = None, raised
        except Exception:
            result, error = None, RuntimeError(traceback.format_exc())
        try:
            pipe.send((time.perf_counter() - start, result, error))
        except ConnectionError:
            return
