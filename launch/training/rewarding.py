"""The rewards of completions, by processes that have limits: what fails there is worth 0, and is counted.

rewards = RewardProcesses(read_rewards(["number"]), seconds=10, gigabytes=4, sandbox=True)
rewards.of([Completion(dialogue, "42", row, answer="42", tokens=2)])    # [Worth({"number": 1.0}, 1.0, failed=0)]
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from data_tools.children import close_in_children, end_process
from launch.errors import UserError
from launch.methods.reward_flags import COMMAND, Reward
from launch.training.reward_worker import NO_SANDBOX

WORKER = Path(__file__).with_name("reward_worker.py")
START_SECONDS = 60.0  # for imports of a user's function, or of a command together with its first answer
LONGEST_ANSWER = 1 << 16  # bytes


@dataclass(frozen=True)
class Completion:
    """A completion with all that a reward may read: the fields are the keys of a line."""

    dialogue: list[dict]
    completion: str
    row: dict
    answer: str
    tokens: int


@dataclass(frozen=True)
class Worth:
    """What a completion is worth.

    Attributes:
        parts: By the names of the rewards, without weights.
        total: Their weighted sum.
        failed: Rewards that were 0 for an exception, or for taking too long.
    """

    parts: dict[str, float]
    total: float
    failed: int


class RewardProcesses:
    """The processes that reward, one for each reward.

    Attributes:
        faults: The first reason of each reward that has failed, by its name.
    """

    def __init__(self, rewards: Sequence[Reward], seconds: float, gigabytes: float, sandbox: bool, template: str = ""):
        self.rewards, self.faults = tuple(rewards), {}
        limits = {"bytes": int(gigabytes * 2**30), "template": template}
        self._processes = [
            _RewardProcess(
                limits | {"kind": one.kind, "value": one.value, "sandbox": sandbox and one.kind == COMMAND}, seconds
            )
            for one in rewards
        ]
        weakref.finalize(self, _close, self._processes)

    def of(self, completions: Sequence[Completion]) -> list[Worth]:
        """Return what each completion is worth.

        Raises:
            UserError: If a command cannot have its sandbox, or a process cannot start.
        """
        found = []
        for one in completions:
            line = json.dumps(asdict(one), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
            answers = [process.ask(line) for process in self._processes]
            parts = {}
            for reward, answer in zip(self.rewards, answers, strict=True):
                parts[reward.name] = answer.get("reward", 0.0)
                if "error" in answer:
                    self.faults.setdefault(reward.name, answer["error"])
            total = sum(reward.weight * parts[reward.name] for reward in self.rewards)
            found.append(Worth(parts, total, sum("error" in answer for answer in answers)))
        return found


class _RewardProcess:
    """A process that rewards. A new one is started after one that had to be ended."""

    def __init__(self, settings: dict, seconds: float):
        self.settings, self.seconds = settings, seconds
        self.process: subprocess.Popen[bytes] | None = None
        self.answered = False

    def ask(self, line: bytes) -> dict:
        """Return the answer to a line."""
        limit, process, answer = self.seconds, self.process, b""
        if process is None:
            process = self.process = self._start()
            if self.settings["kind"] == COMMAND:
                limit += START_SECONDS
            elif not _exchange(process, b"", START_SECONDS) and process.poll() is None:  # a line, once it is loaded
                self.close(at_once=True)
                return {"error": f"it took more than {START_SECONDS:g} s to load"}
        elif _exchange(process, b"", 0):
            self.close(at_once=True)
            return {"error": "it wrote more than one line for an answer"}
        with contextlib.suppress(BrokenPipeError):
            answer = _exchange(process, line, limit)
        if len(answer) >= LONGEST_ANSWER:
            self.close(at_once=True)
            return {"error": f"it wrote {LONGEST_ANSWER:,} bytes and more for an answer"}
        if answer.endswith(b"\n"):
            self.answered = True
            return _read(answer)
        ended = process.poll()
        code = self.close(at_once=True)
        if ended is None:
            return {"error": f"it took more than {self.seconds:g} s (--reward_seconds)"}
        if code == NO_SANDBOX and self.settings["sandbox"]:
            raise UserError(
                "--reward_sandbox: the kernel refuses this user a sandbox without network. Allow user namespaces, or "
                "let the command run without: --reward_sandbox 0."
            )
        if not self.answered:
            raise UserError(
                f"--reward: {self.settings['kind']}:{self.settings['value']} ended with {code} before its first "
                "reward; the lines above say why."
            )
        return {"error": f"its process ended with {code}"}

    def _start(self) -> subprocess.Popen[bytes]:
        places = [place for place in sys.path if place]
        run = f"import runpy, sys; sys.path[:] = {places!r}; runpy.run_path({str(WORKER)!r}, run_name='__main__')"
        command = [sys.executable, "-I", "-c", run, json.dumps(self.settings)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        assert process.stdin
        os.set_blocking(process.stdin.fileno(), False)
        close_in_children(process.stdin, process.stdout)
        return process

    def close(self, at_once: bool = False) -> int | None:
        """End the process; its exit code."""
        process, self.process = self.process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            assert pipe
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        if at_once:  # with all that a command has started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return end_process(process, "a process that rewards")


def _exchange(process: subprocess.Popen[bytes], line: bytes, seconds: float) -> bytes:
    """Send a line, or none, and return the next one of the process, or what came of it in time and within the length.

    A process that reads its input late, or never, does not hold this one up.
    """
    assert process.stdin and process.stdout
    found, end = b"", time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if line:
            selector.register(process.stdin, selectors.EVENT_WRITE)
        while not found.endswith(b"\n") and len(found) < LONGEST_ANSWER:
            if not (ready := selector.select(max(end - time.monotonic(), 0))):
                break
            if process.stdin in [key.fileobj for key, _ in ready]:
                line = line[process.stdin.write(line) or 0 :]
                if not line:
                    selector.unregister(process.stdin)
            if process.stdout in [key.fileobj for key, _ in ready]:
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(1)
                    break
                found += part
    return found


def _close(processes: list[_RewardProcess]) -> None:
    for process in processes:
        process.close()


def _read(line: bytes) -> dict:
    """Return an answer, of which a number alone is one, too."""
    try:
        found = json.loads(line)
        return found if isinstance(found, dict) and "error" in found else {"reward": _finite(found)}
    except (ValueError, TypeError, KeyError, OverflowError):
        return {"error": f'expected a number or {{"reward": number}} on a line, found {line[:100]!r}'}


def _finite(found: object) -> float:
    number = float(found["reward"] if isinstance(found, dict) else found)  # pyright: ignore[reportArgumentType]
    if number - number:
        raise ValueError("no finite number")
    return number
