"""What the ranks of these tests share. Imported in ranks only: it needs Paddle."""

import threading
from collections.abc import Callable

import paddle.distributed as dist

HANG = "hang"


def start(bridged: bool) -> None:
    """Join the default group, with the bridges or as upstream left it."""
    if bridged:
        from launch.rehearsal import collectives

        collectives.install()
    dist.init_parallel_env()
    dist.barrier()  # a rank that ends at once would leave the others connecting to nobody


def attempt(action: Callable[[], object], seconds: float = 3.0) -> str:
    """How action() ends: "returned", the exception's type and message, or "hang" after some seconds.

    A hanging action stays behind in its thread, and ends with the rank.
    """
    endings = []

    def run():
        try:
            action()
            endings.append("returned")
        except BaseException as error:
            endings.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return endings[0] if endings else HANG
