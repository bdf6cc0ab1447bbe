"""A bad hour of the server: clients that leave, crawl, push too much and ask nonsense. It answers the others, says no
by name, ends when it is told to, and its memory stays what it was."""

import json
import random
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import openai
import psutil
import pytest

from tests.serving.servers import start_fake, start_serve

pytestmark = pytest.mark.nightly
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def server():
    return start_fake(places=256, client_seconds=10)


def post(prompt: str, **more) -> bytes:
    body = json.dumps({"model": "base", "prompt": prompt, "max_tokens": 2000} | more).encode()
    return HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


def leave(server, number: int) -> None:
    """Ask, and go away: at once, within the request, or within the answer."""
    draw = random.Random(number)
    sent = post("slow endless", stream=bool(number % 2))
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection, suppress(OSError):
        connection.sendall(sent[: draw.choice([0, 40, len(sent) - 1, len(sent)])])
        if number % 3 == 0:
            connection.settimeout(0.2)
            connection.recv(10)


def asks(server, number: int) -> str:
    client = server.client()
    try:
        return client.completions.create(model="base", prompt=f"a {number}", max_tokens=50).choices[0].text
    except openai.RateLimitError:
        return "429"


def storm(server) -> None:
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda number: leave(server, number), range(300)))
    server.wait_for("waiting_rows", 0)
    server.wait_for("running_rows", 0)
    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda number: asks(server, number), range(200)))
    assert answers == [f"<a {number}>" for number in range(200)]


def test_memory_is_flat_and_others_are_answered(server):
    process = psutil.Process(server.process.pid)
    used = [process.memory_info().rss]
    files = process.num_fds()
    crawling = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(50)]
    for connection in crawling:
        connection.sendall(HEAD[:60])
    for _ in range(3):
        storm(server)
        assert server.ask("/v1/completions", b" " * (4 * 2**20 + 1))[0] == 413
        assert server.ask("/v1/completions", {"model": "base", "prompt": "a", "stop": ["x"] * 10_000})[0] == 400
        used.append(process.memory_info().rss)
    for connection in crawling:
        with connection:
            assert connection.recv(10) == b""  # ended by the server
    first, _, last = (after - before for before, after in pairwise(used))
    # The first fills what is kept: pools, threads, arenas, of which another allocator may take more, also later.
    assert last < max(8 * 2**20, first / 2), used
    deadline = time.monotonic() + 20
    while process.num_fds() > files + 10 and time.monotonic() < deadline:  # idle connections end after 5 s
        time.sleep(0.1)
    assert process.num_fds() <= files + 10
    assert "Traceback" not in "".join(server.said)
    assert server.stop() == 0


def test_memory_for_keys_and_values_is_flat_and_limited(served):
    """Of a real model: what can never fit is refused."""
    flags = ("--kv_cache_gb", 1024 * 1024 / 2**30, "--device", "cpu")  # 1,024 tokens take 1 KiB each
    server = start_serve("--model_name_or_path", served / "model", *flags)
    assert "keys and values: 1,024 tokens of 1,024 bytes" in " ".join("".join(server.said).split())
    client, process, draw = server.client(), psutil.Process(server.process.pid), random.Random(0)

    def ask(size: int) -> str:
        prompt = [draw.randrange(5, 200) for _ in range(size)]
        return client.completions.create(model="model", prompt=prompt, max_tokens=12).choices[0].finish_reason

    with pytest.raises(
        openai.BadRequestError, match=r"1060 tokens with the answer, .* memory for 1024 \(--kv_cache_gb"
    ):
        client.completions.create(model="model", prompt=[7] * 60, max_tokens=1000)
    used = [process.memory_info().rss]
    with ThreadPoolExecutor(32) as pool:
        for _ in range(4):
            assert all(pool.map(ask, [draw.randrange(1, 90) for _ in range(120)]))
            used.append(process.memory_info().rss)
    first, *_, last = (after - before for before, after in pairwise(used))
    assert last < max(8 * 2**20, first / 2), used  # the first fills what is kept: pools, arenas, blocks
    assert server.stop() == 0


def test_a_stop_under_load_answers_what_runs_and_ends(server):
    with ThreadPoolExecutor(100) as pool:
        waiting = [pool.submit(whole, server, number) for number in range(100)]
        server.wait_for("running_rows", 4)
        server.process.send_signal(signal.SIGTERM)
        found = [one.result() for one in waiting]
    assert server.process.wait(timeout=60) == 0
    assert set(found) <= {"answered", "refused"} and "answered" in found
    assert "Traceback" not in "".join(server.said)


def whole(server, number: int) -> str:
    """A stream that begins comes to its end; the others are refused."""
    try:
        reply = server.client().completions.create(model="base", prompt=f"slow {number}", max_tokens=50)
    except (openai.APIConnectionError, openai.InternalServerError):
        return "refused"
    return "answered" if reply.choices[0].text == f"<slow {number}>" else reply.choices[0].text
