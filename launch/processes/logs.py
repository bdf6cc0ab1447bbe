"""Logs of ranks, named as paddle.distributed.launch names them, and reports of how a rank has ended.

A report gives what an exit code means where the log cannot say it, and the end of the log.
"""

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

LAST_LINES = 20
LAST_BYTES = 16 * 1024
PYTHON_ERROR = "Traceback (most recent call last)"
SECONDS_KEPT = 10.0  # longer than a launcher takes to notice a rank's end


def log_path(log_dir: Path, rank: int) -> Path:
    """Return the path of a rank's log."""
    return Path(log_dir) / f"workerlog.{rank}"


def last_lines(path: Path, count: int = LAST_LINES) -> str:
    """Return the last `count` lines of a log, "" when there is none."""
    try:
        with open(path, "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - LAST_BYTES))
            text = log.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-count:])


def first_to_fail(log_dir: Path, ranks: list[int]) -> int:
    """Return the rank that failed first among the ranks found failed at one poll.

    A rank whose peer has died fails on the lost connection within milliseconds, and its complaint hides the cause. The
    rank that failed first also wrote to its log for the last time first.
    """
    return min(ranks, key=lambda rank: log_path(log_dir, rank).stat().st_mtime_ns)


class Follower:
    """Copies what is appended to a file to a stream, each time `copy` is called.

    A traceback and what comes after it are kept back for a while: a lost connection writes a long one, and its
    cause may be another rank's end, which is known a moment later.
    """

    def __init__(self, path: Path, stream: TextIO):
        self.path = path
        self.stream = stream
        self.offset = 0
        self.kept, self.kept_since = "", 0.0
        self.is_unread = False  # whether the stream's reader, or the terminal, is gone

    def copy(self) -> None:
        """Copy new lines of the log; an error is held back for some seconds."""
        new = self._new()
        if self.kept:
            self.kept += new
        else:
            before, error, after = new.partition(PYTHON_ERROR)
            self._show(before)
            self.kept, self.kept_since = error + after, time.monotonic()
        if time.monotonic() - self.kept_since > SECONDS_KEPT:
            self.release()

    def release(self) -> None:
        """Show what is kept back."""
        kept, self.kept = self.kept, ""
        self._show(kept)

    def _new(self) -> str:
        if not self.path.exists():
            return ""
        with open(self.path, "rb") as log:
            log.seek(self.offset)
            new = log.read()
        self.offset += len(new)
        return new.decode("utf-8", errors="replace")

    def _show(self, text: str) -> None:
        if not text or self.is_unread:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except OSError:  # EPIPE of a pipe, EIO of a terminal
            self.is_unread = True


KILLED = 128 + signal.SIGKILL
HUNG = 128 + signal.SIGALRM  # launch/watch.py
BY_SIGNAL = {  # exit codes of ranks that could not say a word themselves
    KILLED: "it was killed from outside: by hand, by a scheduler, or by the kernel for lack of host memory "
    "(`dmesg | grep -i kill` tells)",
    128 + signal.SIGBUS: "it ended with SIGBUS: most often /dev/shm is full, which the ranks of a machine share "
    "(`df -h /dev/shm` tells; `docker run --shm-size=8g` gives more)",
    128 + signal.SIGSEGV: "it ended with SIGSEGV, a fault within a library or a driver: `make doctor` tells whether "
    "they belong together",
    128 + signal.SIGABRT: "it ended with SIGABRT: a library gave up, most often with a message in the log",
}

STACKS = re.compile(r"^Timeout \(.*\)!$", re.MULTILINE)  # what faulthandler writes above them
THREAD = re.compile(r"^(?:Current t|T)hread 0x", re.MULTILINE)
SAVER = "launch/training/saver.py"  # of the thread that writes a checkpoint
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (\S+)$', re.MULTILINE)


def print_failure(rank: int, exit_code: int, log_dir: Path, shown: bool = False, where: str = "") -> None:
    """Say on stderr which rank failed and why, and show the end of its log, unless it is empty or the user has seen it.

    where: " of this node" where the run has several, and rank is the number on this one.
    """
    path = log_path(log_dir, rank)
    print(f"\nrank {rank}{where} failed with exit code {exit_code}; its log is {path}", file=sys.stderr)
    if meaning := explain_end(exit_code, log_dir):
        print(meaning, file=sys.stderr)
    if not shown and (end := last_lines(path)):
        print(f"the end of its log:\n{end}", file=sys.stderr)


def explain_end(exit_code: int, log_dir: Path) -> str:
    """Return lines about an end that no rank has reported by itself, "" for other ends."""
    if exit_code == HUNG:
        logs = sorted(log_dir.glob("workerlog.*"), key=lambda log: int(log.suffix[1:]))
        where = "\n".join(f"  rank {log.suffix[1:]}: {_place(log)}" for log in logs)
        return f"the run made no step any more (--hang_factor, --hang_seconds). Where the ranks were:\n{where}"
    return BY_SIGNAL.get(exit_code, "")


def _place(log: Path) -> str:
    """Return the innermost frame of the thread that trains, and the call of our code or the Trainer there."""
    stacks = STACKS.split(log.read_text(encoding="utf-8", errors="replace"))
    if len(stacks) < 2:
        return "its log has no stack: it was stopped, or it had ended"
    threads = [FRAME.findall(thread) for thread in THREAD.split(stacks[-1])]
    training = max(threads, key=len)  # helpers of libraries wait a few frames deep
    ours = next((frame for frame in training if "/launch/" in frame[0] or "paddlenlp/trainer" in frame[0]), training[0])
    called = f", called by {_frame(ours)}" if ours != training[0] else ""
    saving = [thread[0] for thread in threads if thread is not training and any(SAVER in frame[0] for frame in thread)]
    save = f"; its save is in {_frame(saving[0])}" if saving else ""
    return f"in {_frame(training[0])}{called}{save}"


def _frame(frame: tuple[str, str, str]) -> str:
    file, line, function = frame
    return f"{function} ({'/'.join(Path(file).parts[-2:])}:{line})"
