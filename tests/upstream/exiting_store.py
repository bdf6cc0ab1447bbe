"""A process that serves a store and ends while another is connected to it, for test_store_aborts_at_exit.py.

    python -m tests.upstream.exiting_store [NAME OF A CORRECTION]...

The other's connection closes when the destructors of this process have run, which no run decides by itself: functions
for its exit that are registered before Paddle is imported are called after Paddle's own.
"""

import ctypes
import os
import resource
import subprocess
import sys

SECONDS_TO_HEAR = 2  # that the other is gone, for the thread of this process that serves the store
CONNECTED = """
import os, sys
from paddle.base import core
store = core.TCPStore("127.0.0.1", int(sys.argv[1]), False, 1, 60)
store.set("connected", b"1")
sys.stdin.read()  # until the server's end of the pipe is closed
os._exit(0)
"""


def main(corrections: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it is made to be aborted
    from_us, to_other = os.pipe()
    at_exit("sleep", SECONDS_TO_HEAR)  # the last registered is called first
    at_exit("wait", 0)  # until the other has ended
    at_exit("close", to_other)

    import paddle
    from paddle.base import core

    from launch.nodes.network import reserved_ports
    from launch.upstream import correct

    paddle.disable_signal_handler()  # it uses what is destroyed, too: some aborts would become segmentation faults
    correct(corrections)
    with reserved_ports(1) as [port]:
        store = core.TCPStore("127.0.0.1", port, True, 1, 60)
    subprocess.Popen([sys.executable, "-c", CONNECTED, str(port)], stdin=from_us)
    store.get("connected")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))  # as the store of a run, which a static variable holds
    print("done", flush=True)


def at_exit(function: str, argument: int) -> None:
    """Have a function of libc called after all that is registered later."""
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit.argtypes = [ctypes.c_void_p] * 3
    libc.__cxa_atexit(ctypes.cast(getattr(libc, function), ctypes.c_void_p), argument, None)


if __name__ == "__main__":
    main(sys.argv[1:])
