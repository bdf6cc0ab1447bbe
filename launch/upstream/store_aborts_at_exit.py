"""A rank that has ended well is aborted on its way out, now and then: exit code 134, or 139.

Upstream: the ranks meet in a TCPStore, which a thread of rank 0 serves (LibUVMasterDaemon in
paddle/phi/core/distributed/store/tcp_store_libuv.cc). Nothing ends that thread before the destructors of Paddle's
libraries run. When the connection of another rank closes after them, it logs that, and the log's lock is destroyed
already: abort(). Paddle's handler of that signal may then end by a segmentation fault, for the same reason.
Without the correction: a run of several processes fails after its model has been written and evaluated, seldom, most
often where the ranks end together on a busy machine, and whatever was to follow it is not done.
Here: the store is served by its older server, which logs nothing then (FLAGS_tcp_store_using_libuv).
"""

import paddle


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})
