"""Calls that take seconds, in a process beside the studio, so that plans do not wait for them."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from data_tools.children import end_process
from launch.errors import UserError


class SlowCalls:
    """The process is started by the first call, and anew after one that has ended. It ends with the studio."""

    def __init__(self):
        self._lock = threading.Lock()  # requests come in several threads
        self._pool = _new_pool()

    def __call__(self, function: Callable, argument):
        """What the function returns. Raises what it raises; UserError where the process ends meanwhile."""
        with self._lock:
            try:
                future = self._pool.submit(function, argument)
            except BrokenProcessPool:
                self._pool = _new_pool()
                future = self._pool.submit(function, argument)
        try:
            return future.result()
        except BrokenProcessPool:
            raise UserError(
                "the process that computes this was ended from outside, most often for want of memory: ask again."
            ) from None

    def close(self) -> None:
        """At once, also amid a call: nobody reads its answer."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.kill()
            end_process(process, "the process of slow calls")


def _new_pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _prepare)


def _prepare() -> None:
    """Ctrl-C is for the studio, with which this process ends: not with the thread that started it, which is one of a
    request, so the kernel's signal at a parent's end is of no use."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)
