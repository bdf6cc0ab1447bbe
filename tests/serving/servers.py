"""Servers as processes, for tests."""

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import openai

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Server:
    """A running server. said: all its output so far."""

    process: subprocess.Popen
    port: int = 0
    grpc_port: int = 0
    said: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def client(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=60)

    def ask(self, path: str, body: bytes | dict | None = None, headers: dict | None = None) -> tuple[int, str]:
        """(status, text) of a bare request."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"} | (headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, key: str = "none") -> float:
        """The sum of a metric's values, or of one with its labels."""
        status, text = self.ask("/metrics", headers={"Authorization": f"Bearer {key}"})
        assert status == 200, text
        lines = [line for line in text.splitlines() if line.startswith(f"serving_{name}")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def wait_for(self, name: str, value: float, key: str = "none") -> None:
        """Until a metric has this value."""
        deadline = time.monotonic() + 20
        while (found := self.metric(name, key)) != value:
            assert time.monotonic() < deadline, f"{name} is {found}, not {value}"
            time.sleep(0.01)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


def start(command: list[str], ready: str, folder: Path = ROOT, time_limit: float = 180, **variables: str) -> Server:
    """A command of Python in a folder. ready: a pattern of what is said once it answers, its groups the ports.
    variables: of its environment."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environment = os.environ | variables
    process = subprocess.Popen([sys.executable, *command], cwd=folder, start_new_session=True, env=environment, **pipes)
    atexit.register(_kill_group, process.pid)  # where a test has failed before its end
    server = Server(process)
    threading.Thread(target=lambda: server.said.extend(iter(process.stdout.readline, "")), daemon=True).start()
    deadline = time.monotonic() + time_limit
    while not (found := re.search(ready, "".join(server.said), re.DOTALL)):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"no server: {''.join(server.said)}")
        time.sleep(0.02)
    server.port, server.grpc_port = [*map(int, found.groups()), 0][:2]
    return server


def _kill_group(number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(number, signal.SIGKILL)


def start_fake(
    places: int = 64, seconds: float = 30.0, key: str | None = None, client_seconds: float = 20, end_seconds: float = 60
) -> Server:
    """client_seconds: for a request's header and its body. end_seconds: from a stop to the end of the process."""
    numbers = map(str, (places, seconds, client_seconds, end_seconds))
    words = ["-m", "tests.serving.fake_server", *numbers, *([key] if key else [])]
    return start(words, r"ready (\d+) (\d+)\n")


def start_serve(*words: object, **variables: str) -> Server:
    """launch/commands/serve.py on any ports."""
    command = ["launch/commands/serve.py", "--port", "0", "--grpc_port", "0", *map(str, words)]
    return start(command, r"http://127\.0\.0\.1:(\d+)/v1.*gRPC\s+127\.0\.0\.1:(\d+).*ready", **variables)


def try_to_serve(*words: object, **variables: str) -> subprocess.CompletedProcess:
    """How launch/commands/serve.py ends that refuses what it is asked for."""
    command = [sys.executable, "launch/commands/serve.py", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, timeout=120)
