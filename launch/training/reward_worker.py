"""Rewards completions in a process of its own, which limits its memory and may have no network.

    python launch/training/reward_worker.py '{"kind": "number", "value": "", "bytes": 4294967296, "sandbox": false}'

Each line of the standard input is {"dialogue", "completion", "row", "answer", "tokens"}, each line of the standard
output {"reward": number} or {"error": reason}, behind an empty one that says that the reward is loaded. A command of
the user's takes this process's place, within the limits: it reads the same lines, and answers each with such an object
or with a number alone.
"""

import ctypes
import json
import math
import os
import resource
import runpy
import shlex
import sys
from collections.abc import Callable

NO_SANDBOX = 77  # exit code where the kernel refuses one
NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER and CLONE_NEWNET of linux/sched.h

MOST_PROCESSES = 1024  # and threads of a command in its sandbox; root's are never counted
COUNTED_APART = (5, 14)  # Linux since which a user namespace counts its own processes alone (ucounts)


def main(settings: dict) -> int:
    """Serve until the standard input ends; the exit code."""
    limit = int(settings["bytes"])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if settings["sandbox"] and ctypes.CDLL(None, use_errno=True).unshare(NEW_USER | NEW_NETWORK):
        return NO_SANDBOX
    if settings["sandbox"] and tuple(map(int, os.uname().release.split(".")[:2])) >= COUNTED_APART:
        resource.setrlimit(resource.RLIMIT_NPROC, (MOST_PROCESSES, MOST_PROCESSES))
    if settings["kind"] == "command":
        words = shlex.split(settings["value"])
        os.execvp(words[0], words)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a reward prints is no answer
    reward = _reward(settings)
    print(file=answers, flush=True)  # ready
    for line in sys.stdin:
        try:
            found = {"reward": _number(reward(json.loads(line)))}
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(found), file=answers, flush=True)
    return 0


def _reward(settings: dict) -> Callable[[dict], float]:
    """Return the reward of a line."""
    kind, value = settings["kind"], settings["value"]
    if kind.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(kind)))
        function = runpy.run_path(kind)[value]
        return lambda one: function(one["dialogue"], one["completion"], one["row"])
    from launch.training.graders import grader

    return grader(kind, value, settings.get("template", ""))


def _number(value: object) -> float:
    number = float(value)  # pyright: ignore[reportArgumentType]  # of a user's function: its error is reported
    if not math.isfinite(number):
        raise ValueError(f"found {number}, expected a finite number")
    return number


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
