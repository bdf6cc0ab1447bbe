"""Processes: order, errors, an end from outside, and the number that is found."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass

import psutil
import pytest

from data_tools.formats.errors import DataError
from data_tools.text import workers
from data_tools.text.workers import Workers
from tests.data_tools.conftest import ROOT


@dataclass(frozen=True)
class Task:
    number: int
    size: int = 1000


def later_for_the_first(task):
    time.sleep(0.02 if task.number % 5 == 0 else 0)
    return task.number * 2


@pytest.mark.parametrize("count", [0, 1, 3])
def test_results_come_in_order(count):
    with Workers(later_for_the_first, count) as pool:
        found = [(task.number, result) for task, result in pool.in_order(Task(i) for i in range(40))]
    assert found == [(i, 2 * i) for i in range(40)]


def test_tasks_are_taken_few_ahead():
    taken = []

    def tasks():
        for i in range(100):
            taken.append(i)
            yield Task(i)

    with Workers(later_for_the_first, 2) as pool:
        results = pool.in_order(tasks())
        next(results)
        assert len(taken) <= 2 * 2 + 1
        results.close()


@pytest.mark.parametrize(
    "raised, expected, message",
    [(DataError, DataError, "^a.jsonl:3$"), (KeyError, RuntimeError, "KeyError: 'a.jsonl:3'")],
)
def test_an_error_comes_through(raised, expected, message):
    def fail_at_three(task):
        if task.number == 3:
            raise raised("a.jsonl:3")

    with Workers(fail_at_three, 2) as pool, pytest.raises(expected, match=message):
        list(pool.in_order(Task(i) for i in range(40)))


def test_a_worker_that_is_killed():
    def die_at_three(task):
        if task.number == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    with Workers(die_at_three, 2) as pool, pytest.raises(DataError, match=r"exit code -9.*--workers N"):
        list(pool.in_order(Task(i) for i in range(40)))


def test_a_task_without_end_is_given_up():
    def tasks():
        yield Task(0)
        raise KeyError("no more tasks")

    with pytest.raises(KeyError, match="no more tasks"), Workers(lambda task: time.sleep(600), 2) as pool:
        list(pool.in_order(tasks()))


def test_no_worker_outlives_its_parent():
    program = """
        import sys, time
        from data_tools.text.workers import Workers
        pool = Workers(time.sleep, 3)
        print(*[worker._process.pid for worker in pool._workers], flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        processes = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(processes) == 3
        parent.kill()
    assert psutil.wait_procs(processes, timeout=20)[1] == []


def test_no_more_workers_than_cores(monkeypatch, capsys):
    monkeypatch.setattr(workers, "available_cores", lambda: 2)
    assert [workers.at_most_cores(count) for count in (None, 0, 2, 400)] == [None, 0, 2, 2]
    assert capsys.readouterr().err == "--workers 400: this process may use 2 cores; 2 work\n"


@pytest.mark.parametrize("cores, useful, found", [(8, 8, 8), (8, 3, 4), (8, 1, 1), (6, 6, 6), (2, 1, 1), (1, 1, 1)])
def test_as_many_as_help(monkeypatch, cores, useful, found):
    """Of `cores` workers only `useful` get a core: those beyond slow all down. Time is simulated."""
    monkeypatch.setattr(workers, "available_cores", lambda: cores)
    with Workers(lambda task: None) as pool:
        ask = workers._Worker.ask
        pace = lambda: 0.01 * max(1.0, pool.active / useful)  # noqa: E731
        monkeypatch.setattr(workers._Worker, "ask", lambda self, task: (pace(), ask(self, task)[1]))
        for _ in pool.in_order(Task(i) for i in range(400)):
            pass
    assert pool.active == found
    assert set(pool.speeds) <= {cores, cores // 2, cores // 4, cores // 8}
