"""Run `paddle.distributed.launch`, show rank 0, leave no process behind, and end with the cause of a failure.

The launcher by itself leaves its workers running when it is killed; when a rank fails, it often ends with 241
(the signal it sent to the other ranks), shows rank 0's lost connection where rank 5 ran out of memory, and
mixes its own log with the training's. So its output goes to LOG_DIR/launcher.log, and what the user sees
comes from here. Of several nodes, a launcher knows nothing of the others' ranks: that is what the link is for.
"""

import contextlib
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from data_tools.cli import EXIT_USER_ERROR
from launch.nodes.network import Ended, Link
from launch.processes.logs import PYTHON_ERROR, Follower, first_to_fail, last_lines, log_path, print_failure
from launch.processes.orphans import adopt_orphans, blocked_signals, make_above, recorded_signals, signal_at_parents_end

POLL_SECONDS = 0.1
SECONDS_APART = 1.0  # signals within this time are one: make and a scheduler send it both, a terminal's end twice
SECONDS_TO_END = 3.0  # for orphans between SIGTERM and SIGKILL
SECONDS_TO_SAVE = 1800.0  # for ranks between a signal and their end: a checkpoint of a large model takes minutes
SECONDS_AFTER_PEER = 15.0  # for the launcher and its ranks once another node has ended badly
SECONDS_TO_HEAR = 10.0  # of another node's failure, the cause of a lost connection here: its launcher polls slowly

# What gloo, NCCL and Paddle's store say when a peer is gone or does not come.
LOST_CONNECTION = re.compile(
    r"gloo|nccl|connection|connect to|broken pipe|socket|timed? ?out|tcp_?store|peer", re.IGNORECASE
)
# What the launcher logs about the failed rank with the lowest number (Container.__str__ in job/container.py).
FAILED_CONTAINER = re.compile(r"Container rank (\d+) status failed .* code (-?\d+) log ")


def supervise(
    command: list[str], log_dir: str | Path, ranks: int, link: Link | None = None, grace: float = SECONDS_TO_SAVE
) -> int:
    """Run a launcher's command to its end; the exit code of the run.

    Call from the main thread of a process of its own. ranks: of this node; link: to the other nodes of the run, whose
    bad end is ours, too.

    Rank 0's output appears on stdout, but for a traceback that another rank's end has caused. SIGINT, SIGTERM and
    SIGHUP go to the ranks, which save what they have done; so they do when the make above gets one to end, when the
    launcher is killed, and when nobody reads our output any more. What is left after `grace` seconds, or at a second
    SIGINT or SIGTERM, is killed.
    Logs of an earlier run in log_dir are kept under another name. Exit code: 0, also where all ranks ended well after
    a signal; 128 + N when signal N ended the run; else the worst of the failed ranks that the launcher reports, with
    the end of the log of the rank that failed first on stderr.
    """
    exit_code, peer = 128 + signal.SIGTERM, None  # what the other nodes hear should this process be torn down
    try:
        exit_code, peer = _run(command, Path(log_dir), ranks, link, grace)
    finally:
        if link:
            link.end(exit_code, peer.why if peer else "")
    return exit_code


def _run(command: list[str], log_dir: Path, ranks: int, link: Link | None, grace: float) -> tuple[int, Ended | None]:
    """Return the exit code of the run, and another node's failure."""
    _put_aside(log_dir)
    log_dir.mkdir(parents=True)
    adopt_orphans()
    launcher_log = log_dir / "launcher.log"
    with recorded_signals() as signals, open(launcher_log, "wb") as log:
        launcher = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a terminal's Ctrl-C reaches us alone
            preexec_fn=lambda: signal_at_parents_end(signal.SIGTERM),
        )
        try:
            follower = Follower(log_path(log_dir, 0), sys.stdout)
            received, peer = _wait(launcher, follower, signals, link, grace)
        finally:
            _end_descendants()
    if received is None and peer is None:
        received = _stopped_by_launcher(launcher.returncode, launcher_log)
    failed_here = launcher.returncode != 0 and received is None and peer is None
    if not failed_here:
        follower.release()
    if peer is None and launcher.returncode == 0:
        return 0, None
    if received is not None:
        with contextlib.suppress(OSError):  # whoever has read us may be gone
            print(f"\nstopped by {signal.Signals(received).name}; the logs of all ranks: {log_dir}", file=sys.stderr)
        return 128 + received, None
    if failed_here:
        # If all tracebacks of ranks here end on a lost connection, another node's end is the reason.
        ends = [last_lines(log_path(log_dir, rank)) for rank in range(ranks)]
        errors = [end.rpartition(PYTHON_ERROR)[2].splitlines()[-1] for end in ends if PYTHON_ERROR in end]
        is_lost = bool(errors) and all(LOST_CONNECTION.search(error) for error in errors)
        peer = link.lost(SECONDS_TO_HEAR if is_lost else 0) if link else None
        if peer and is_lost:
            print(f"\n{peer.why}: the ranks here have lost it; their traces are in {log_dir}", file=sys.stderr)
            return peer.exit_code, peer
        where = " of this node" if link else ""
        exit_code = _explain_failure(launcher.returncode, launcher_log, log_dir, ranks, follower, where)
        if peer:
            print(f"\n{peer.why}, too: its log may tell the cause", file=sys.stderr)
        return exit_code, peer
    assert peer is not None  # nothing else is left that ends a run
    print(f"\n{peer.why}: stopped here, too; the log of this node is {log_dir}", file=sys.stderr)
    return peer.exit_code, peer


def _wait(
    launcher: subprocess.Popen, follower: Follower, signals: list[int], link: Link | None, grace: float
) -> tuple[int | None, Ended | None]:
    """Wait until the launcher has ended, and its ranks where it was killed.

    Return the first signal received meanwhile, and the first failure of another node.
    """
    received = peer = kill_at = None
    make, received_at = _SignalsOfMake(), 0.0
    while True:
        code = launcher.poll()
        if code is not None and code >= 0:
            break
        if code is not None and not psutil.wait_procs(psutil.Process().children(), timeout=0)[1]:
            break  # killed, and no process below this one lives; ended ones are cleared away
        time.sleep(POLL_SECONDS)
        follower.copy()
        if link and peer is None and received is None and (peer := link.lost()):
            kill_at = time.monotonic() + SECONDS_AFTER_PEER
            launcher.send_signal(signal.SIGTERM)
        if launcher.returncode is not None and kill_at is None:
            kill_at = time.monotonic() + grace  # the ranks have got SIGTERM from the kernel
        if received is None:
            signals += make.received()
            signals += [signal.SIGPIPE] if follower.is_unread else []
        while signals:
            number, now = signals.pop(0), time.monotonic()
            if received is None:
                received, received_at, kill_at = number, now, now + grace
                _signal_ranks(launcher, signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
            elif number != signal.SIGHUP and now - received_at > SECONDS_APART:
                kill_at = now
        if kill_at is not None and time.monotonic() >= kill_at:
            for process in psutil.Process().children(recursive=True):
                process.kill()
    follower.copy()
    return received, peer


class _SignalsOfMake:
    """The make that started this process; it passes on SIGTERM alone."""

    def __init__(self):
        self.process = make_above()
        self.blocked = blocked_signals(self.process) if self.process else set()
        self.seen: set[int] = set()

    def received(self) -> list[int]:
        """Return the signal that make has received, once it was seen twice.

        A terminal's Ctrl-C reaches this process, too.
        """
        if self.process is None:
            return []
        before, self.seen = self.seen, blocked_signals(self.process) - self.blocked
        return sorted(before & self.seen)[:1]


def _signal_ranks(launcher: subprocess.Popen, number: int) -> None:
    """Send a signal to the ranks, not to the launcher, which would give them 30 seconds.

    Where the launcher is gone the ranks are children of this process.
    """
    with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended just now
        above = psutil.Process(launcher.pid if launcher.poll() is None else None)
        for process in above.children() or [psutil.Process(launcher.pid)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def _end_descendants() -> None:
    """End whatever the launcher left behind: all of it is below us now."""
    left = psutil.Process().children(recursive=True)
    for process in left:
        process.terminate()
    for process in psutil.wait_procs(left, timeout=SECONDS_TO_END)[1]:
        process.kill()


def _stopped_by_launcher(returncode: int, launcher_log: Path) -> int | None:
    """Return the signal after which the launcher itself ended its ranks; it then exits with that number."""
    if returncode not in (signal.SIGINT, signal.SIGTERM):
        return None
    was_stopped = f"Terminating with signal {returncode}" in launcher_log.read_text(errors="replace")
    return returncode if was_stopped else None


def _explain_failure(
    returncode: int, launcher_log: Path, log_dir: Path, ranks: int, follower: Follower, where: str
) -> int:
    """Show the end of the log that has the cause; the exit code of the run.

    follower: of rank 0, whose traceback is shown where it is the cause.
    """
    failure = FAILED_CONTAINER.search(launcher_log.read_text(errors="replace"))
    codes = {_as_shell_code(returncode)}
    if failure is None:
        follower.release()
        how = (
            f" ({signal.Signals(-returncode).name}; its ranks got the signal to save and end)" if returncode < 0 else ""
        )
        print(f"\nthe launcher failed{how}; the end of {launcher_log}:", file=sys.stderr)
        print(last_lines(launcher_log), file=sys.stderr)
        return codes.pop()
    codes.add(_as_shell_code(int(failure[2])))
    codes.discard(128 + signal.SIGTERM)  # a rank that the launcher stopped because another had failed
    exit_code = max(codes, default=128 + signal.SIGTERM)
    failed = [rank for rank in range(ranks) if PYTHON_ERROR in last_lines(log_path(log_dir, rank), 200)]
    first = first_to_fail(log_dir, [int(failure[1]), *failed])
    if first == 0:
        follower.release()
    # A mistake of the user is reported by all ranks, and was shown when rank 0 reported it.
    is_shared_by_all = exit_code == EXIT_USER_ERROR and _last_line(log_dir, first) == _last_line(log_dir, 0)
    print_failure(first, exit_code, log_dir, shown=first == 0 or is_shared_by_all, where=where)
    return exit_code


def _last_line(log_dir: Path, rank: int) -> str:
    return last_lines(log_path(log_dir, rank), 1)


def _as_shell_code(code: int) -> int:
    """Return 128 + N for an end by signal N.

    Popen gives such an end as -N, and the launcher's sys.exit(-N) becomes 256 - N.
    """
    if code < 0:
        return 128 - code
    return 128 + 256 - code if code > 192 else code


def _put_aside(log_dir: Path) -> None:
    """Rename log to log.1, or the first number that is free."""
    if not log_dir.exists():
        return
    number = 1
    while log_dir.with_name(f"{log_dir.name}.{number}").exists():
        number += 1
    log_dir.rename(log_dir.with_name(f"{log_dir.name}.{number}"))
