"""Calls that take seconds, in a process beside the studio, so that nothing else waits for them."""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from data_tools.children import end_process
from launch.errors import UserError

SECONDS = 120.0  # that a call may take


class SlowCalls:
    """A process for slow calls.

    It is started by the first call, and again after one that has ended. It ends with the studio, and with a call that
    nobody waits for any more.
    """

    def __init__(self):
        self._turn = asyncio.Semaphore(1)
        self._pool = _new_pool()

    async def __call__(self, function: Callable, argument):
        """Return what the function returns. Raises its exceptions; UserError where the process ends meanwhile."""
        async with self._turn:
            try:
                future = self._pool.submit(function, argument)
            except BrokenProcessPool:
                self._pool = _new_pool()
                future = self._pool.submit(function, argument)
            try:
                return await asyncio.wait_for(asyncio.wrap_future(future), SECONDS)
            except BrokenProcessPool:
                raise UserError(
                    "the process that computes this was ended from outside, most often for want of memory: ask again."
                ) from None
            except (asyncio.CancelledError, asyncio.TimeoutError) as error:
                self.close()
                self._pool = _new_pool()
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise UserError(f"this has not been computed within {SECONDS:g} s: ask for fewer cards.") from None

    def close(self) -> None:
        """End the process at once, also amid a call: nobody reads its answer."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.kill()
            end_process(process, "the process of slow calls")


def _new_pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _prepare)


def _prepare() -> None:
    """Let the process ignore Ctrl-C, and end with the studio.

    It must not end with the thread that started it, which is one of a request, so the kernel's signal at a parent's end
    is of no use.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)
