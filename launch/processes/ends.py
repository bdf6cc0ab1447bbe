"""How a rank has ended, told: what its exit code means where its log cannot say, and the end of its log."""

import re
import signal
import sys
from pathlib import Path

from launch.processes.logs import last_lines, log_path

KILLED = 128 + signal.SIGKILL
HUNG = 128 + signal.SIGALRM  # launch/watch/hang.py
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
SAVER = "launch/training/saving/saver.py"  # of the thread that writes a checkpoint
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
    """Lines about an end that no rank has told by itself, "" for others."""
    if exit_code == HUNG:
        logs = sorted(log_dir.glob("workerlog.*"), key=lambda log: int(log.suffix[1:]))
        where = "\n".join(f"  rank {log.suffix[1:]}: {_place(log)}" for log in logs)
        return f"the run made no step any more (--hang_factor, --hang_seconds). Where the ranks were:\n{where}"
    return BY_SIGNAL.get(exit_code, "")


def _place(log: Path) -> str:
    """The innermost frame of the thread that trains, and what our code or the Trainer called there."""
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
    return f"{function} ({_short(file)}:{line})"


def _short(file: str) -> str:
    return "/".join(Path(file).parts[-2:])
