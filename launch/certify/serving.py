"""The server answers on the card as it does on the CPU, requests alone and together. No Paddle here."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from launch.certify.bench import FULL_FLOAT32, ROOT, Bench, CheckFailed
from launch.processes.logs import last_lines
from launch.processes.orphans import signal_at_parents_end

PROMPTS = ["bade gano misura" * (number + 1) for number in range(8)]
TOKENS = 16
SECONDS_TO_START = 150.0
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/v1")


def serving(bench: Bench) -> None:
    """Greedy answers in float32; then all prompts at once, which are answered in one batch."""
    with _server(bench, "card", bench.pretend) as port:
        alone = [_ask(port, prompt) for prompt in PROMPTS]
        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            together = list(pool.map(lambda prompt: _ask(port, prompt), PROMPTS))
    _compare(bench, "asked together", "as asked alone", alone, together)
    if bench.pretend:
        bench.row("asked alone", "as on the CPU", "it is the CPU", None)
        return
    with _server(bench, "cpu", True) as port:
        right = [_ask(port, prompt) for prompt in PROMPTS]
    _compare(bench, "asked alone", "as on the CPU", right, alone)


def _compare(bench: Bench, what: str, expected: str, right: list[str], found: list[str]) -> None:
    different = [number for number, pair in enumerate(zip(right, found, strict=True)) if pair[0] != pair[1]]
    text = f"{len(different)} of {len(right)} answers differ"
    if different:
        text += f", the first: {found[different[0]]!r}, not {right[different[0]]!r}"
    bench.row(what, expected, text, not different)


@contextmanager
def _server(bench: Bench, name: str, on_cpu: bool) -> Iterator[int]:
    """The port of a server with the tiny model; at the end it is asked to stop, and must."""
    log = bench.directory / f"{name}.log"
    device = "cpu" if on_cpu else "gpu"
    command = [sys.executable, str(ROOT / "launch" / "commands" / "serve.py"), "--port", "0", "--grpc_port", "0"]
    command += ["--model_name_or_path", str(bench.materials / "model"), "--device", device, "--dtype", "float32"]
    environment = os.environ | FULL_FLOAT32 | ({"CUDA_VISIBLE_DEVICES": ""} if on_cpu else {})
    with open(log, "wb") as file:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: signal_at_parents_end(signal.SIGTERM),
        )
    try:
        yield _port(process, log)
        process.terminate()
        exit_code = process.wait(timeout=60)
        bench.row(f"the server on the {name} stops when it is asked to", "exit code 0", f"{exit_code}", exit_code == 0)
    finally:
        process.kill()


def _port(process: subprocess.Popen, log: Path) -> int:
    """Once it answers. Raises CheckFailed where it ends before, or does not answer in time."""
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline and process.poll() is None:
        said = log.read_text(encoding="utf-8", errors="replace")
        if "\nready" in said:
            return int(ADDRESS.search(said)[1])
        time.sleep(0.2)
    raise CheckFailed(f"the server did not answer: {last_lines(log, 3)}")


def _ask(port: int, prompt: str) -> str:
    body = {"model": "model", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as reply:
        return json.loads(reply.read())["choices"][0]["text"]
