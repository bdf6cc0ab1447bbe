"""The process beside the studio: one that has ended is replaced, and none outlives the studio."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from launch.errors import UserError
from launch.studio import slow_calls
from launch.studio.slow_calls import SlowCalls
from tests.store import ROOT


def own_number(times: int) -> int:
    return os.getpid() * times


def refuse(words: str) -> None:
    raise UserError(words)


def end(number: int) -> None:
    os.kill(os.getpid(), number)


def sleep(file: str) -> None:
    Path(file).touch()
    time.sleep(600)


def studio_that(function: str, *words) -> subprocess.CompletedProcess:
    """A process with a process beside it. Its output ends when both have ended."""
    program = (
        f"from tests.studio import test_slow_calls\nif __name__ == '__main__': test_slow_calls.{function}(*{words})"
    )
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100)


def call_from_a_thread_that_ends() -> None:
    slow = SlowCalls()
    for _ in range(3):
        thread = threading.Thread(target=lambda: print(asyncio.run(slow(own_number, 1))))
        thread.start()
        thread.join()
    slow.close()


def test_the_process_stays_where_the_thread_that_started_it_ends():
    done = studio_that("call_from_a_thread_that_ends")
    assert (done.stderr, len(done.stdout.split()), len(set(done.stdout.split()))) == ("", 3, 1)


def call_one_that_ends() -> None:
    slow = SlowCalls()
    first = asyncio.run(slow(own_number, 1))
    for function, argument in [(end, signal.SIGKILL), (refuse, "a fault of the question")]:
        try:
            asyncio.run(slow(function, argument))
        except UserError as error:
            print(error)
    print(asyncio.run(slow(own_number, 2)) // 2 != first)
    slow.close()


def test_one_that_has_ended_is_replaced():
    ended = "the process that computes this was ended from outside, most often for want of memory: ask again."
    done = studio_that("call_one_that_ends")
    assert (done.stderr, done.stdout.splitlines()) == ("", [ended, "a fault of the question", "True"])


def leave_calls(file: str) -> None:
    asyncio.run(leave_calls_to(SlowCalls(), file))


async def leave_calls_to(slow: SlowCalls, file: str) -> None:
    """One that waits is answered when the client before it goes, or the time of its call is over."""
    first = 0
    for seconds, gone in ((600, "cancelled"), (5, "late")):
        slow_calls.SECONDS = seconds
        before = asyncio.create_task(slow(sleep, f"{file}-{gone}"))
        behind = asyncio.create_task(slow(own_number, 1))
        while not Path(f"{file}-{gone}").exists():
            await asyncio.sleep(0.01)
        if gone == "cancelled":
            before.cancel()
        [found] = await asyncio.gather(before, return_exceptions=True)
        print(type(found).__name__, found, (await behind) != first)
        first = await behind
    slow.close()


def test_a_call_ends_with_its_client_and_its_time(tmp_path):
    done = studio_that("leave_calls", str(tmp_path / "begun"))
    late = "UserError this has not been computed within 5 s: ask for fewer cards."
    assert (done.stderr, done.stdout.splitlines()) == ("", ["CancelledError  True", f"{late} True"])


def end_amid_a_call(how: str, file: str) -> None:
    slow = SlowCalls()
    print(asyncio.run(slow(own_number, 1)), flush=True)
    threading.Thread(target=lambda: asyncio.run(slow(sleep, file)), daemon=True).start()
    while not Path(file).exists():
        time.sleep(0.01)
    slow.close() if how == "close" else os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("how", "code"), [("close", 0), ("kill", -signal.SIGKILL)])
def test_it_ends_with_the_studio_amid_a_call(tmp_path, how, code):
    done = studio_that("end_amid_a_call", how, str(tmp_path / "begun"))
    assert (done.returncode, "has not ended" in done.stderr) == (code, False)
    number = int(done.stdout)
    left = [psutil.Process(number)] if psutil.pid_exists(number) else []
    assert psutil.wait_procs(left, timeout=20)[1] == []
