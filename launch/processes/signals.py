"""Signals as events that a loop of ours looks at, instead of code that runs at any moment."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def recorded_signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM do nothing but append their number to the list given. For the main thread."""
    received: list[int] = []

    def record(number, frame):
        received.append(number)

    previous = {number: signal.signal(number, record) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
