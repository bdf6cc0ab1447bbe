"""Ranks by fork, from a process that has imported Paddle once.

Importing Paddle and paddlenlp costs seconds in every process; a fork of a process that has them is there at
once. So tests and rehearsals start their ranks this way, with the environment that
`paddle.distributed.launch` would give them:

    outcome = run_ranks(8, main, "log")        # main(rank) runs in each of eight processes

What the caller must know:
- Run no operator before the fork, neither Paddle's nor NumPy's matrix product: threads of an OpenMP runtime
  do not survive it. (Each rank may still choose its threads: Paddle starts its runtime with the first
  operator.)
- Paddle reads its place among the ranks at import, long before there are any. It is reset and checked here,
  because a rank that believes to be alone trains happily and exits 0.
"""

import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from launch.cpu.settings import threads_per_rank
from launch.errors import UserError
from launch.nodes.network import reserved_ports
from launch.processes.logs import Follower, first_to_fail, log_path
from launch.processes.orphans import hangup_is_ignored, recorded_signals, signal_at_parents_end

POLL_SECONDS = 0.02  # at most; of a short run a tenth of its time
TIMED_OUT = 124  # exit code, as of timeout(1)


@dataclass(frozen=True)
class Outcome:
    """The end of a run of several ranks.

    Attributes:
        exit_codes: One per rank, as a shell shows them (128 + N for a rank ended by signal N).
        exit_code: Of the run: 0, else the highest among the ranks that failed by themselves, 128 + N when the run
            was ended by signal N, 124 when it met its time limit.
        failed_rank: The rank that failed first, None when none did.
    """

    exit_codes: tuple[int, ...]
    exit_code: int
    failed_rank: int | None


def run_ranks(
    n: int,
    function: Callable[[int], None],
    log_dir: str | Path,
    *,
    environment: Mapping[str, str] | None = None,
    tee: bool = False,
    time_limit: float | None = None,
    grace: float = 5.0,
) -> Outcome:
    """Call function(rank) in n forked processes and wait for them; call from the main thread.

    Rank r writes to log_dir/workerlog.r; with `tee`, rank 0's output appears on stdout, too. `environment` is
    set in each rank on top of its place among the ranks. At SIGINT, SIGTERM or SIGHUP to this process, when one
    rank fails, or after `time_limit` seconds, all that run get SIGTERM. Who is still there `grace` seconds later (at
    once, at a second signal) gets SIGKILL, as do processes that a rank left behind.
    """
    log_dir = Path(log_dir)
    log_dir.mkdir(parents=True, exist_ok=True)
    for rank in range(n):
        log_path(log_dir, rank).write_bytes(b"")
    follower = Follower(log_path(log_dir, 0), sys.stdout) if tee else None
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()  # or a rank's first full collection would touch, and so copy, all that it shares with this process
    ranks = _Ranks(grace)
    with reserved_ports(n) as ports, recorded_signals() as signals:
        endpoints = [f"127.0.0.1:{port}" for port in ports]
        try:
            for rank in range(n):
                place = rank_environment(rank, endpoints) | dict(environment or {})
                ranks.fork(place, partial(_run_rank, n, function, rank, log_path(log_dir, rank)))
            return _wait(ranks, log_dir, signals, follower, time_limit)
        except BaseException:
            ranks.send(signal.SIGKILL)
            raise


def rank_environment(rank: int, endpoints: list[str]) -> dict[str, str]:
    """Return the variables that paddle.distributed.launch sets for a rank on CPU, and the rank's share of cores."""
    n = len(endpoints)
    return {
        "PADDLE_MASTER": endpoints[0],
        "PADDLE_GLOBAL_SIZE": str(n),
        "PADDLE_LOCAL_SIZE": str(n),
        "PADDLE_GLOBAL_RANK": str(rank),
        "PADDLE_LOCAL_RANK": str(rank),
        "PADDLE_NNODES": "1",
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(n),
        "PADDLE_RANK_IN_NODE": str(rank),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_DISTRI_BACKEND": "gloo",
        "FLAGS_selected_cpus": str(rank),
        "OMP_NUM_THREADS": threads_per_rank(n),
    }


def _run_rank(n: int, function: Callable[[int], None], rank: int, log: Path) -> int:
    """Run the function in a forked rank, with its log; returns the exit code."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    # The parent's streams may be buffered, or not be files at all; a log is read while it grows.
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)
    try:
        _enter_world(n)
        function(rank)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _enter_world(n: int) -> None:
    """Let a Paddle that was imported before the fork read this rank's place again."""
    parallel = sys.modules.get("paddle.distributed.parallel")
    if parallel is None:
        return
    parallel._global_parallel_env = None  # pyright: ignore[reportAttributeAccessIssue]  # its type is any module
    world_size = sys.modules["paddle.distributed"].get_world_size()
    if world_size != n:
        raise RuntimeError(f"rank started as one of {n}, but Paddle sees a world of {world_size}")


class _Ranks:
    """The forked processes: exit codes of the ended ones, signals to the others."""

    def __init__(self, grace: float):
        self.grace = grace
        self.pids: list[int] = []
        self.codes: list[int | None] = []
        self.kill_at: float | None = None  # set once they have got a signal to stop

    def fork(self, environment: Mapping[str, str], run: Callable[[], int]) -> None:
        """Start the next rank, which exits with what run() returns."""
        parent = os.getpid()
        # Blocked until the rank has removed this process's handler, which would swallow the signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            pid = os.fork()
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        if pid:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self.pids.append(pid)
            self.codes.append(None)
            return
        exit_code = 1
        try:
            os.setpgid(0, 0)  # a terminal's Ctrl-C reaches the parent alone, which forwards it
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if not hangup_is_ignored():
                signal.signal(signal.SIGHUP, signal.SIG_DFL)
            os.environ.update(environment)
            signal_at_parents_end(signal.SIGKILL)
            if os.getppid() == parent:  # else it ended before the request
                exit_code = run()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(exit_code)  # not sys.exit: what the parent does at its exit is not ours to do

    def running(self) -> list[int]:
        return [pid for pid, code in zip(self.pids, self.codes, strict=True) if code is None]

    def failed(self) -> list[int]:
        return [rank for rank, code in enumerate(self.codes) if code]

    def reap(self) -> None:
        """Note the exit codes of ended processes, and end what they started."""
        for rank, pid in enumerate(self.pids):
            if self.codes[rank] is not None:
                continue
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            _signal_group(pid, signal.SIGKILL)  # before waitpid, which frees the group's number for others
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            self.codes[rank] = 128 - code if code < 0 else code

    def send(self, number: int) -> None:
        for pid in self.running():
            _signal_group(pid, number)

    def stop(self, number: int) -> None:
        """Send a signal; after the time of grace, or at the second call, `kill_if_due` kills."""
        self.send(number)
        now = time.monotonic()
        self.kill_at = now + self.grace if self.kill_at is None else now

    def kill_if_due(self) -> None:
        if self.kill_at is not None and time.monotonic() >= self.kill_at:
            self.send(signal.SIGKILL)


def _wait(
    ranks: _Ranks, log_dir: Path, signals: list[int], follower: Follower | None, time_limit: float | None
) -> Outcome:
    start = time.monotonic()
    exit_code, failed_rank = 0, None
    while ranks.running():
        time.sleep(min(POLL_SECONDS, max(0.001, (time.monotonic() - start) / 10)))
        ranks.reap()
        if follower:
            follower.copy()
        if signals:
            number = signals.pop(0)
            exit_code = exit_code or 128 + number
            ranks.stop(signal.SIGTERM)  # as the launcher does: SIGINT would print a traceback in every rank
        elif ranks.kill_at is not None:
            ranks.kill_if_due()
        elif ranks.failed():
            failed_rank = first_to_fail(log_dir, ranks.failed())
            exit_code = max(code for code in ranks.codes if code)
            ranks.stop(signal.SIGTERM)
        elif time_limit is not None and time.monotonic() - start > time_limit:
            exit_code = TIMED_OUT
            ranks.stop(signal.SIGTERM)
    return Outcome(tuple(code for code in ranks.codes if code is not None), exit_code, failed_rank)


def _signal_group(pid: int, number: int) -> None:
    """Send a signal to a rank and all that it started."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        os.kill(pid, number)  # so young that it does not lead its group yet
