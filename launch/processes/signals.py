"""Signals as events that a loop of ours looks at, instead of code that runs at any moment."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

ASK_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def recorded_signals() -> Iterator[list[int]]:
    """SIGINT, SIGTERM and SIGHUP do nothing but append their number to the list given. For the main thread.

    SIGHUP stays ignored where it is: that is what nohup is for.
    """
    received: list[int] = []

    def record(number, frame):
        received.append(number)

    heard = [number for number in ASK_TO_END if number != signal.SIGHUP or not hangup_is_ignored()]
    previous = {number: signal.signal(number, record) for number in heard}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def hangup_is_ignored() -> bool:
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
