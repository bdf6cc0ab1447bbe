"""Bad requests to the server and the studio while a stream goes on: does anything else stand still, grow or fail?

    python benchmarks/attack.py                   # 2,000 generated requests, 15 minutes
    python benchmarks/attack.py --requests 40     # does it run?
    python benchmarks/attack.py --seed 7          # the same requests again

A tiny model is served, with llguidance where it is installed. Sent are the requests that once stopped a server
(docs/serve.md has the limits), and others that Hypothesis makes of valid ones, one after the other, by REST, by gRPC
and to the studio's page. It ends with 1 where a figure misses its limit: the largest gap of a stream that is always
read, answers with a fault of ours, memory 30 seconds later, and the time from SIGTERM to the end, amid a bad request.
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

import grpc
import httpx
import psutil
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as some

from benchmarks.serving import ALL, SMOKE
from launch.config.flag_values import known_flags
from tests.ranks import RankServer
from tests.serving.servers import ROOT, Server, start, start_serve

TOKEN = "a-token-of-the-attack"
GAP_SECONDS, MEMORY_BYTES, END_SECONDS = 2.0, 200e6, 20.0
QUIET_SECONDS = 30.0
TRIMMED = {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "2"}  # what is free goes back, as by malloc_trim
PRIMES = (999983, 999979, 999961, 999959, 999953)
HELD = {"type": "array", "items": {"anyOf": [{"type": "integer", "multipleOf": prime} for prime in PRIMES]}}
FIELDS = ("model", "prompt", "messages", "max_tokens", "temperature", "top_p", "top_k", "n", "stop", "seed", "stream")
FIELDS += ("logprobs", "top_logprobs", "echo", "logit_bias", "response_format", "frequency_penalty", "presence_penalty")
FIELDS += ("prompt_logprobs", "tools", "tool_choice", "stream_options", "max_completion_tokens", "best_of", "user")
PATHS = ("plan", "advice", "layouts", "checks", "data", "result", "save", "stop", "trial/completions", "note", "resume")
RECIPES = ("lora-tiny", "pretrain-llama7b", "lora-qwen3-8b", "nothing")
VARIABLES = ("MODEL", "DATA", "OUTPUT", "GPUS", "CARD", "PROCESSES", "NNODES", "NETWORK", "ARGS", "folder", "base")
WORDS = ("", "0", "1", "-1", "8", "1e9", "9" * 5000, "\ud800", "$(x)", "~", "/dev/zero", "a\nb", "x", "\0", "H100")
ODD = (None, True, -1, 0, 2**63, 10**4000, 1e308, float("nan"), "", "\ud800", "x" * 100_000, [1] * 10_000, [[]] * 9999)


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--requests", type=int, default=2000, help="how many are generated")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of the generated requests")
    parser.add_argument(
        "--slower", type=float, default=1, help="factor on limits of time, on a machine with other work"
    )
    args = parser.parse_args(argv)
    print(f"seed {args.seed}", flush=True)
    ranks = RankServer()
    with tempfile.TemporaryDirectory() as directory:
        ranks(1, "benchmarks.serving_worker:make_material", directory, SMOKE | ALL)
        ranks.close()
        grammar = ("--grammar_backend", "llguidance") if importlib.util.find_spec("llguidance") else ()
        words = ("--model_name_or_path", Path(directory, "model"), "--device", "cpu", "--kv_cache_gb", 0.1)
        server = start_serve(*words, *grammar, **TRIMMED)
        studio = start(
            [str(ROOT / "launch" / "commands" / "studio.py"), "--port", "0"],
            r"open http://127\.0\.0\.1:(\d+)/.*ready",
            Path(directory),
            STUDIO_TOKEN=TOKEN,
            **TRIMMED,
        )
        try:
            figures = _attack(server, studio, args.requests, args.seed)
        finally:
            for one in (server, studio):
                one.process.kill()
    missed = False
    for name, found, limit, unit in figures:
        limit *= args.slower if unit == "s" else 1
        missed |= found > limit
        print(f"{'missed' if found > limit else 'fine  '}  {name}: {found:.3g} {unit}, at most {limit:.3g} {unit}")
    return int(missed)


def _attack(server: Server, studio: Server, count: int, seed: int) -> list[tuple[str, float, float, str]]:
    """Return rows of the results: name, value, limit, unit."""
    sender = Sender(server, studio)
    sender.rest("/v1/completions", {"model": "model", "prompt": "a", "max_tokens": 4})
    sender.page("plan", {"recipe": "lora-qwen3-8b"})
    sender.page("advice", {"recipe": "lora-qwen3-8b"})
    before = {name: _memory(one) for name, one in (("server", server), ("studio", studio))}
    apart = multiprocessing.get_context("spawn")  # a process of its own: to make large requests holds the others here
    over, (ours, theirs) = apart.Event(), apart.Pipe()
    reader = apart.Process(target=_read_streams, args=(server.url, theirs, over), daemon=True)
    reader.start()
    ours.recv()
    for request in _known(sender):
        request()
    _generated(sender, count, seed)
    over.set()
    gap, end = ours.recv()
    reader.join()
    time.sleep(QUIET_SECONDS)
    grown = {name: _memory(one) - before[name] for name, one in (("server", server), ("studio", studio))}
    held = {"model": "model", "prompt": "a", "response_format": _as_format(HELD), "max_tokens": 900}
    ends = {"server": _end(server, lambda: sender.rest("/v1/completions", held))}
    ends["studio"] = _end(studio, lambda: sender.page("layouts", {"recipe": "pretrain-llama7b", "GPUS": "4096"}))
    print(f"answers: {dict(sorted(sender.statuses.items(), key=str))}")
    for place in sender.faults[:20]:
        print(f"a fault: {place}")
    for sent, what in sender.sent:
        if end - gap - 1 < sent < end:
            print(f"at the largest gap: {sent - end + gap:+.1f} s {what}")
    rows = [("largest gap of the stream", gap, GAP_SECONDS, "s")]
    rows += [("answers with a fault of ours, or none", len(sender.faults), 0, "answers")]
    more = f"more memory {QUIET_SECONDS:g} s later"
    rows += [(f"{name}: {more}", grown[name] / 1e6, MEMORY_BYTES / 1e6, "MB") for name in grown]
    return rows + [(f"the {name} ends after SIGTERM", ends[name], END_SECONDS, "s") for name in ends]


def _memory(server: Server) -> int:
    process = psutil.Process(server.process.pid)
    return sum(one.memory_info().rss for one in (process, *process.children(recursive=True)))


def _read_streams(url: str, told, over) -> None:
    """Read one stream after the other, until `over`, and report the largest gap between two events.

    The first event is reported, too; a gap comes with the time at its end.
    """
    body = {"model": "model", "prompt": "one two", "stream": True, "max_tokens": 200, "seed": 1}
    last, largest = 0.0, (0.0, 0.0)
    with httpx.Client(timeout=120) as client:
        while not over.is_set():
            with client.stream("POST", f"{url}/v1/completions", json=body) as reply:
                for _ in reply.iter_bytes():
                    now = time.time()
                    if last:
                        largest = max(largest, (now - last, now))
                    else:
                        told.send("begun")
                    last = now
    told.send(largest)


class Sender:
    """A sender of requests that counts the answers.

    Attributes:
        faults: Requests that met a fault of ours, or no answer.
    """

    def __init__(self, server: Server, studio: Server):
        self.server, self.studio = server, studio
        self.client = httpx.Client(timeout=120)
        self.statuses: Counter = Counter()
        self.faults: list[str] = []
        self.sent: list[tuple[float, str]] = []  # when, and what

    def rest(self, path: str, body: object) -> None:
        """Send a request to the server's REST interface."""
        self._send(f"{self.server.url}{path}", body, {})

    def page(self, path: str, body: object) -> None:
        """Send a request to the studio."""
        self._send(f"{self.studio.url}/api/{path}", body, {"Authorization": f"Bearer {TOKEN}"})

    def _send(self, url: str, body: object, headers: dict) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.sent.append((time.time(), f"{url} {content[:300]!r}"))
        try:
            reply = self.client.post(url, content=content, headers=headers | {"Content-Type": "application/json"})
            status, text = reply.status_code, reply.text[:200]
        except httpx.HTTPError as error:
            status, text = 0, type(error).__name__
        self.statuses[status] += 1
        if status in (0, 500, 502):
            self.faults.append(f"{status} {self.sent[-1][1]}: {text}")

    def rpc(self, content: bytes, **options) -> None:
        """Send a request to the server's gRPC interface."""
        with grpc.insecure_channel(self.server.grpc, **options) as channel:
            call = channel.unary_unary("/paddle_llm_recipes.v1.Generation/Complete", lambda sent: sent, lambda got: got)
            try:
                call(content, timeout=120)
            except grpc.RpcError as error:
                self.statuses[error.code().name] += 1
                if error.code() in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL):
                    self.faults.append(f"gRPC {error.code().name} {content[:100]!r}: {error.details()}")


def _as_format(schema: object) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}


def _known(sender: Sender) -> list[Callable[[], object]]:
    """Return calls that have once stopped a server or a studio."""
    ask = {"model": "model", "prompt": "a", "max_tokens": 4}
    prompts = ([1.5] * 1_000_000, [{}] * 1_000_000, [1] * 2_000_000, [[1]] * 500_000)
    schemas = (HELD, {"$ref": "#"}, {"minimum": float("nan")})
    bodies: list[object] = [ask | {"prompt": prompt} for prompt in prompts]
    bodies += [ask | {"response_format": _as_format(schema)} for schema in schemas]
    bodies += [ask | {"logit_bias": dict.fromkeys(map(str, range(200_000)), 1)}, ask | {"stop": ["a"] * 500_000}]
    bodies += [b"[" * 100_000]
    given = ({"GPUS": "1000000000"}, {"GPUS": "9" * 5000}, {"ARGS": "--weight_quantize_algo x"}, {"MODEL": "\ud800"})
    choices = [{"recipe": "lora-qwen3-8b"} | one for one in given]
    calls = [lambda body=body: sender.rest("/v1/completions", body) for body in bodies]
    calls += [lambda choice=choice: sender.page("plan", choice) for choice in choices]
    calls += [lambda: sender.rpc(b"\0" * 3_000_000, compression=grpc.Compression.Gzip)]
    calls += [lambda: sender.rpc(b"no message")]
    return [*calls, lambda: _leave_layouts(sender), lambda: _stay_idle(sender)]


def _leave_layouts(sender: Sender) -> None:
    """Ask for layouts from many clients that leave at once; another one is then answered."""
    body = json.dumps({"recipe": "pretrain-llama7b", "GPUS": "64"}).encode()
    head = f"POST /api/layouts HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    asked = [socket.create_connection(("127.0.0.1", sender.studio.port)) for _ in range(60)]
    for one in asked:
        one.sendall(head.encode() + body)
    sender.page("plan", {"recipe": "lora-qwen3-8b"})
    for one in asked:
        one.close()
    sender.page("advice", {"recipe": "lora-qwen3-8b"})


def _stay_idle(sender: Sender) -> None:
    ports = [one.port for one in (sender.server, sender.studio) for _ in range(300)]
    idle = [socket.create_connection(("127.0.0.1", port)) for port in ports]
    sender.rest("/v1/completions", {"model": "model", "prompt": "a", "max_tokens": 4})
    sender.page("plan", {"recipe": "lora-qwen3-8b"})
    for one in idle:
        one.close()


def _generated(sender: Sender, count: int, seed: int) -> None:
    """Send generated requests: valid ones with some fields of any value."""
    leaf = some.sampled_from(ODD) | some.integers() | some.floats() | some.text(max_size=20)
    names = some.text(max_size=8) | some.sampled_from(("type", "anyOf", "items", "properties", "multipleOf", "enum"))
    value = some.recursive(
        leaf, lambda inner: some.lists(inner, max_size=4) | some.dictionaries(names, inner, max_size=4), max_leaves=12
    )
    fields = some.dictionaries(some.sampled_from(FIELDS), value, min_size=1, max_size=3)
    fields |= some.builds(lambda schema: {"response_format": _as_format(schema)}, value)
    known = some.sampled_from(sorted(known_flags("launch/finetune_generation.py")))
    flags = some.builds("--{} {}".format, known, some.sampled_from(WORDS))
    words = some.sampled_from(WORDS) | some.text(max_size=20) | flags
    choices = some.dictionaries(some.sampled_from(VARIABLES), words, max_size=3)
    request = some.one_of(
        some.tuples(some.just("completions"), fields),
        some.tuples(some.just("chat/completions"), fields),
        some.tuples(some.just("rpc"), some.binary(max_size=200)),
        some.tuples(some.sampled_from(PATHS), choices, some.sampled_from(RECIPES)),
        some.tuples(some.sampled_from(PATHS), value),
    )

    limits = {"max_examples": count, "database": None, "deadline": None, "phases": [Phase.generate]}
    limits["suppress_health_check"] = list(HealthCheck)

    @seeded(seed)
    @settings(**limits)
    @given(request)
    def send(request: tuple) -> None:
        path, given, *recipe = request
        if path == "rpc":
            sender.rpc(given)
        elif path in PATHS:
            sender.page(path, {"recipe": recipe[0]} | given if recipe else given)
        else:
            asked = {"messages": [{"role": "user", "content": "a"}]} if "chat" in path else {"prompt": "a"}
            sender.rest(f"/v1/{path}", {"model": "model", "max_tokens": 4} | asked | given)

    send()


def _end(server: Server, request: Callable[[], object]) -> float:
    """Return the seconds from SIGTERM to the end of a process that a request holds."""
    threading.Thread(target=request, daemon=True).start()
    time.sleep(1)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    try:
        server.process.wait(3 * END_SECONDS)
    except subprocess.TimeoutExpired:
        server.process.kill()
    return time.monotonic() - began


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
