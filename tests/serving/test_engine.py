"""The queue: what goes together, what has no room, who leaves, and that a fault ends one batch only."""

import threading
import time
from types import SimpleNamespace

import pytest

from launch.serving.engine import GenerationEngine, QueueFull
from launch.serving.request import Finish, Options, Refusal, Row
from launch.serving.service import RequestLimits, Service
from launch.serving.whole_batches import WholeBatches


def row(group="a", seconds=60.0, max_tokens=3, prompt=(1,), positions=100):
    events = []
    late = time.monotonic() + seconds
    made = Row((group,), list(prompt), Options(), max_tokens, 0, late, events.append, positions)
    made.events = events
    return made


def until(happened):
    deadline = time.monotonic() + 10
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.002)


def whole(answer, largest):
    return WholeBatches({name: SimpleNamespace(answer=answer) for name in "ab"}, largest)


class Held:
    """answer(rows) that waits for go(): batches are seen while they are in work."""

    def __init__(self):
        self.batches, self.entered, self.let_go = [], threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, rows):
        self.batches.append(rows)
        self.entered.release()
        self.let_go.acquire()
        while not all(one.done for one in rows):
            for one in rows:
                if not one.done:
                    one.put(7, ends=(0,))

    def go(self):
        self.let_go.release()

    def wait(self):
        assert self.entered.acquire(timeout=10)


@pytest.fixture
def held():
    return Held()


@pytest.fixture
def engine(held):
    engine = GenerationEngine(whole(held, 3), places=4)
    engine.start()
    yield engine
    for _ in range(10):
        held.go()
    engine.stop(10)
    assert not engine.thread.is_alive()


def test_rows_of_a_group_go_together_in_their_order_and_a_new_batch_starts_when_one_ends(engine, held):
    first, second = row("a"), row("a")
    engine.submit([first, second])
    held.wait()
    late = [row("b"), row("a"), row("b")]
    for one in late:
        engine.submit([one])
    for _ in range(2):
        held.go()
        held.wait()
    held.go()
    assert held.batches == [[first, second], [late[0], late[2]], [late[1]]]


def test_a_batch_has_its_largest_size_and_what_comes_at_once_is_one_batch(engine, held):
    rows = [row() for _ in range(4)]
    for one in rows:
        engine.submit([one])
    for _ in range(2):
        held.wait()
        held.go()
    assert [len(batch) for batch in held.batches] == [3, 1]


def test_a_request_has_room_for_all_its_rows_or_none(engine, held):
    engine.submit([row()])
    held.wait()
    engine.submit([row(), row(), row()])
    with pytest.raises(QueueFull, match="3 of 4 places"):
        engine.submit([row(), row()])
    assert engine.depth() == 3
    engine.submit([row()])


def test_a_batch_fits_into_the_positions(engine, held):
    """7 + 3, 1 + 9 and 2 + 8 of 10; padded to 7 the second would end behind them, the last one fits beside the
    second."""
    rows = [row(prompt=[1] * n, max_tokens=10 - n, positions=10) for n in (7, 1, 2)]
    rows[1].max_tokens = 8
    engine.submit(rows)
    held.wait()
    held.go()
    held.wait()
    held.go()
    assert held.batches == [[rows[0]], [rows[1], rows[2]]]


def test_rows_of_a_batch_that_fails_go_on_alone(capfd):
    bad, good, done = row(), row(), row(max_tokens=1)

    def answer(rows):
        for one in rows:
            if not one.done:
                one.put(5 + len(one.tokens), ends=(0,))
        if bad in rows:
            raise RuntimeError("not with this one")
        while not good.done:
            good.put(5 + len(good.tokens), ends=(0,))

    engine = GenerationEngine(whole(answer, 3), 4)
    engine.submit([good, bad, done])
    engine.start()
    until(lambda: bad.done and good.done)
    assert good.events == [5, 6, 7, Finish.LENGTH] and done.events == [5, Finish.LENGTH]
    assert bad.events == [5, 6, Finish.FAILED]
    engine.stop(10)
    assert capfd.readouterr().err.count("not with this one") == 4  # twice, with the line of the code


def test_a_row_that_is_late_leaves_the_queue_and_is_told(engine, held):
    engine.submit([row()])
    held.wait()
    late = row(seconds=-1)
    engine.submit([late])
    assert engine.depth() == 0 and late.events == [Finish.LATE]


def test_a_row_in_work_ends_when_it_is_late(engine, held):
    late = row(seconds=0.01, max_tokens=10**9)
    engine.submit([late])
    held.wait()
    time.sleep(0.02)
    held.go()
    until(lambda: late.done)
    assert late.events == [7, Finish.LATE]


def test_a_stop_ends_the_batch_in_work_and_forgets_what_waits(engine, held):
    running, waiting = row(max_tokens=10**9), row()
    engine.submit([running])
    held.wait()
    engine.submit([waiting])
    held.go()
    engine.stop(10)
    assert running.done and waiting.done and not engine.thread.is_alive()
    assert Finish.FAILED not in running.events


def test_a_row_that_cannot_be_taken_fails_alone(held, capfd):
    bad, others, batch = row(), [row(), row()], whole(held, 3)
    stock = batch.take

    def take(waiting):
        stock([one for one in waiting if one is not bad])
        if bad in waiting:
            raise MemoryError("no room to copy")
        return list(batch.rows)

    batch.take = take
    engine = GenerationEngine(batch, 4)
    engine.submit([bad, *others])
    engine.start()
    held.wait()
    held.go()
    until(lambda: all(one.done for one in others))
    assert bad.events == [Finish.FAILED] and held.batches == [others]
    assert all(one.events == [7, 7, 7, Finish.LENGTH] for one in others)
    engine.stop(10)
    assert "no room to copy" in capfd.readouterr().err


def test_a_server_whose_step_hangs_says_so(held):
    """As a rank that has stopped makes it. Its health is asked for by whoever can start it again."""
    service = Service({}, whole(held, 1), RequestLimits(1, 2, 300.0))
    service.engine.submit([row()])
    service.engine.start()
    held.wait()
    service.require_running()
    service.engine.began -= 1000  # as if so much time had passed
    with pytest.raises(Refusal, match=r"a step has lasted 10\d\d s, longer than any request may: a card or a rank"):
        service.require_running()
    held.go()
    until(lambda: not service.engine.step_seconds())
    service.require_running()
    service.engine.stop(10)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_no_row_waits_for_a_thread_that_has_ended(capfd):
    asked, ended = [row(), row(), row()], threading.Event()

    def answer(rows):
        if len(rows) == 1:
            raise SystemExit
        raise RuntimeError("not together")

    service = Service({}, whole(answer, 3), RequestLimits(1, 4, 1.0))
    service.require_running()
    service.engine.on_failure = ended.set
    service.engine.submit(asked)
    service.engine.start()
    assert ended.wait(10)
    service.engine.submit(late := [row()])
    assert [one.events for one in [*asked, *late]] == [[Finish.FAILED]] * 4
    service.engine.thread.join(10)
    with pytest.raises(Refusal, match="the thread that answers has ended"):
        service.require_running()
    capfd.readouterr()
