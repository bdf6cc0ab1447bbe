"""REST in front of a fake model, by the official client and by hand: answers, streams, limits, mistakes, the end."""

import json
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import openai
import psutil
import pytest

from launch.errors import UserError
from launch.serving.event_loop import Addresses, bind, run
from launch.serving.rpc import generation_pb2 as messages
from launch.serving.rpc import generation_pb2_grpc as stubs
from launch.serving.service import RequestLimits, Service
from launch.serving.whole_batches import WholeBatches
from tests.processes.waiting import wait_for
from tests.serving.servers import start_fake

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
ASKED = {"role": "user", "content": "a"}


def test_models_and_their_completions(client):
    assert [model.id for model in client.models.list()] == ["base", "poems"]
    assert client.models.retrieve("poems").id == "poems"
    reply = client.completions.create(model="base", prompt="字 é", max_tokens=100)
    [choice] = reply.choices
    assert (choice.text, choice.finish_reason) == ("<字 é>", "stop")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (6, 8, 14)
    [choice] = client.completions.create(model="base", prompt="x" * 20).choices  # 16 tokens, as the API has it
    assert (choice.text, choice.finish_reason) == ("<" + "x" * 15, "length")
    reply = client.completions.create(model="base", prompt=["a", "b"], n=2)
    assert [(choice.index, choice.text) for choice in reply.choices] == [(0, "<a>"), (1, "<a>"), (2, "<b>"), (3, "<b>")]
    assert client.completions.create(model="base", prompt=[97, 98]).choices[0].text == "<ab>"
    assert client.completions.create(model="base", prompt=[[97], [98]]).choices[1].text == "<b>"
    reply = client.completions.create(model="base", prompt="one two three", stop=["wo ", "hree"])
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == ("<one t", "stop")
    assert reply.usage.completion_tokens == 9  # those that were looked at
    events = client.completions.create(model="base", prompt="one two endless", stop="two", stream=True, max_tokens=99)
    assert "".join(event.choices[0].text for event in events) == "<one "


def test_a_chat_its_parts_and_what_it_may_say_that_it_wants_nothing_of(client, server):
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    reply = client.chat.completions.create(model="poems", messages=messages)
    [choice] = reply.choices
    assert (reply.model, choice.message.content, choice.finish_reason) == ("poems", "<s|ab>", "stop")
    [choice] = client.chat.completions.create(model="poems", messages=messages, max_completion_tokens=2).choices
    assert (choice.message.content, choice.finish_reason) == ("<s", "length")
    given = {"role": "assistant", "content": "b", "refusal": None, "annotations": [], "tool_calls": None, "audio": None}
    messages = [{"role": "user", "content": "a"}, given, {"role": "user", "content": "c"}]
    nothing = {"response_format": {"type": "text"}, "tools": [], "tool_choice": "auto", "logprobs": False}
    nothing |= {"parallel_tool_calls": True, "presence_penalty": 0.0, "modalities": ["text"], "safety_identifier": "me"}
    nothing |= {
        "top_k": -1,
        "repetition_penalty": 1.0,
        "min_p": 0,
        "logit_bias": {},
        "n": 1,
        "stop": None,
        "seed": None,
    }
    nothing |= {"stream": None, "stream_options": {"include_usage": True, "include_obfuscation": False}}
    nothing |= {"skip_special_tokens": True, "stop_token_ids": [], "ignore_eos": False, "length_penalty": 1}
    status, text = server.ask("/v1/chat/completions", {"model": "base", "messages": messages} | nothing)
    assert status == 200 and json.loads(text)["choices"][0]["message"]["content"] == "<a|b|c>", text


def test_a_stream_is_the_same_text_in_whole_characters_and_ends_with_usage(client):
    events = list(
        client.completions.create(
            model="base", prompt="字😀", max_tokens=50, stream=True, stream_options={"include_usage": True}
        )
    )
    texts = [event.choices[0].text for event in events if event.choices]
    assert [text for text in texts if text] == ["<", "字", "😀", ">"]
    assert [event.choices[0].finish_reason for event in events if event.choices][-1] == "stop"
    assert events[-1].usage.completion_tokens == 9 and not events[-1].choices
    messages = [{"role": "user", "content": "é"}]
    events = list(client.chat.completions.create(model="base", messages=messages, stream=True))
    assert events[0].choices[0].delta.role == "assistant"
    assert "".join(event.choices[0].delta.content or "" for event in events) == "<é>"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "the body is no JSON: Expecting property name enclosed in double quotes at character 1"),
        (b"\xff\xfe", 400, ""),
        (b"[" * 100_000, 400, ""),
        ({}, 400, "model: missing, and required"),
        ({"model": "base"}, 400, "prompt: missing, and required"),
        ({"model": "nobody", "prompt": "a"}, 404, "found 'nobody', there are base, poems"),
        ({"model": "base", "prompt": 7}, 400, "prompt: found 7, expected a text or a list"),
        ({"model": "base", "prompt": [7, "a"]}, 400, "prompt.1: found 'a', expected a whole number"),
        ({"model": "base", "prompt": []}, 400, "prompt: 0 answers wanted"),
        ({"model": "base", "prompt": ""}, 400, "no token to begin with"),
        ({"model": "base", "prompt": "a", "temperature": -1}, 400, "temperature: found -1.0, expected"),
        ({"model": "base", "prompt": "a", "temperature": "hot"}, 400, "temperature: found 'hot', expected a number"),
        ({"model": "base", "prompt": "a", "top_p": 0}, 400, "top_p: found 0.0, expected above 0, at most 1"),
        ({"model": "base", "prompt": "a", "top_k": -2}, 400, "top_k: found -2"),
        ({"model": "base", "prompt": "a", "max_tokens": 0}, 400, "max_tokens: found 0"),
        ({"model": "base", "prompt": "a", "max_tokens": 2001}, 400, "max_tokens: found 2001, at most 2000 (--max"),
        ({"model": "base", "prompt": "a" * 4000, "max_tokens": 97}, 400, "of the prompt there are positions for 96"),
        ({"model": "base", "prompt": "a" * 4096, "max_tokens": 1}, 400, "prompt: 4096 tokens leave no position"),
        ({"model": "base", "prompt": "a", "n": 65}, 400, "n: found 65, at most 64"),
        ({"model": "base", "prompt": "a", "stop": ["x"] * 17}, 400, "stop: found 17, expected at most 16"),
        (b'{"model": "base", "prompt": "\\ud800"}', 400, "half a surrogate pair"),
        (b'{"model": "base", "prompt": "a", "stop": "\\udfff"}', 400, "stop.0: half a surrogate"),
        (b'{"model": "base", "prompt": "a", "temperature": NaN}', 400, "temperature: found nan"),
        (b'{"model": "base", "prompt": "a", "max_tokens": 1e999}', 400, "max_tokens"),
        ({"model": "base", "prompt": "a", "seed": 10**30, "top_k": 10**18}, 200, "<a>"),
        ({"model": "base", "prompt": "a", "stop": ""}, 400, "stop: found '', expected texts of 1 to"),
        *(({"model": "base", "prompt": "a", "stop": stop}, 400, "stop: found ") for stop in (0, False, {})),
        ({"model": "base", "prompt": "a", "suffix": "b", "best_of": 2}, 400, "by this server: best_of, suffix"),
        ({"model": "base", "prompt": "a", "logit_bias": {"5": 101}}, 400, "logit_bias: found 101.0 for id 5, expected"),
        ({"model": "base", "prompt": "a", "logit_bias": {"five": 1}}, 400, "logit_bias.five"),
        *(
            (
                {"model": "base", "prompt": "a", "logit_bias": {key: 1}},
                400,
                f"logit_bias.{key[:40]}: expected an",
            )
            for key in (" 65", "6_5", "065", "\u0666", "1" * 99, "-1")
        ),
        ({"model": "x" * 10**6, "prompt": "a"}, 404, f"model: found '{'x' * 39}, there are base, poems"),
        ({"model": "base", "prompt": "a", "logit_bias": {"999": 1}}, 400, "logit_bias: found id 999"),
        ({"model": "base", "prompt": "a", "presence_penalty": -2.1}, 400, "presence_penalty: found -2.1, expected -2"),
        ({"model": "base", "prompt": "a", "frequency_penalty": 2, "logit_bias": {"97": -1}}, 200, "<a>"),
        ({"model": "base", "prompt": "a", "tomorrow": 0}, 400, "not understood by this server: tomorrow"),
        ({"model": "base", "prompt": "a", "repetition_penalty": 1.1}, 400, "not understood by this server: repetition"),
        ({"model": "base", "prompt": "a", "min_p": False}, 400, "not understood by this server: min_p"),
        (
            {"model": "base", "prompt": "a", "stream": True, "stream_options": {"all": 1}},
            400,
            "stream_options: not understood by this server: all",
        ),
        ({"model": "base", "prompt": "a", "stream_options": {"a[0]": 1}}, 400, "by this server: a[0]"),
        ({"model": "base", "prompt": "a", "n": 2, "best_of": 2, "logprobs": None, "echo": False}, 200, "<a>"),
        ({"model": "base", "prompt": "x" * 20, "max_tokens": None}, 200, '"completion_tokens":16'),
        ({"model": "base", "prompt": "a", "frequency_penalty": 0, "user": "me"}, 200, "<a>"),
        ({"model": "base", "prompt": "fail"}, 500, "the batch of this request failed"),
    ],
    ids=str,
)
def test_what_is_wrong_has_its_status_and_the_server_goes_on(server, body, status, said):
    found, text = server.ask("/v1/completions", body)
    assert found == status, text
    assert said in (json.loads(text)["error"]["message"] if status != 200 else text)
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "poet", "content": "a"}]}, "role"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "user"),
        ({"messages": [ASKED | {"mood": "Ann"}]}, "messages.0: not understood by this server: mood"),
        ({"messages": [ASKED | {"tool_calls": [{"id": "1"}]}]}, "tool_calls"),
        ({"messages": [ASKED | {"content": [{"type": "text", "text": "a", "cache_control": {}}]}]}, "cache_control"),
        ({"max_completion_tokens": 0}, "max_completion_tokens: found 0"),
        ({"max_completion_tokens": 2, "max_tokens": 3}, "max_completion_tokens: found 2, and max_tokens: 3"),
        ({"response_format": {"type": "json_object"}}, 'response_format: found {"type": "object"}'),
        ({"response_format": {"type": "json_schema"}}, "json_schema: expected with type json_schema"),
        (
            {"response_format": {"type": "grammar"}},
            "response_format.type: found 'grammar', expected 'text', 'json_object' or 'json_schema'",
        ),
        ({"logprobs": 0}, "logprobs: found 0, expected true or false"),
        ({"functions": [{"name": "f"}], "function_call": "f"}, "by this server: function_call, functions"),
        ({"reasoning_effort": "low"}, "not understood by this server: reasoning_effort"),
        ({"modalities": ["text", "audio"]}, "not understood by this server: modalities"),
    ],
    ids=str,
)
def test_a_chat_is_not_answered_otherwise_than_asked(server, more, said):
    body = {"model": "base", "messages": [ASKED]} | more
    status, text = server.ask("/v1/chat/completions", body)
    assert status == 400 and said in json.loads(text)["error"]["message"], text


def test_others_are_answered_while_a_long_prompt_is_encoded(server, client, tmp_path):
    prompt = f"heavy {tmp_path}"
    with ThreadPoolExecutor(1) as pool:
        heavy = pool.submit(lambda: client.completions.create(model="base", prompt=prompt, max_tokens=999))
        wait_for((tmp_path / "begun").exists)
        for _ in range(20):
            assert server.ask("/health")[0] == 200
        assert not heavy.done()
        (tmp_path / "go").touch()
        assert heavy.result().choices[0].text == f"<{prompt}>"


@pytest.mark.long
def test_headers_and_bodies_that_do_not_end_are_ended():
    server = start_fake(client_seconds=0.5)
    cases = [
        (b"", b""),
        (HEAD, b""),
        (HEAD + b"Content-Length: 100\r\n\r\n{", b" 408 "),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea", b" 200 "),
    ]

    def is_ended(sent: bytes, answer: bytes) -> None:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(sent)
            received = b"".join(iter(lambda: connection.recv(4096), b""))  # to the end: the server closes it
            assert answer in received and received.count(b"HTTP/1.1") == (answer != b""), sent

    with ThreadPoolExecutor(len(cases)) as pool:
        list(pool.map(is_ended, *zip(*cases, strict=True)))
    body = json.dumps({"model": "base", "prompt": "slow" * 10, "max_tokens": 99}).encode()
    assert server.ask("/v1/completions", body)[0] == 200  # an answer may take longer
    assert server.stop() == 0


def test_other_paths_methods_kinds_and_sizes_of_body_and_names_of_somebody_else(server):
    assert server.ask("/v1/nothing")[0] == 404
    assert server.ask("/v1/completions")[0] == 405
    assert server.ask("/v1/models/nobody")[0] == 404
    assert server.ask("/v1/completions", b'{"model": "base", "prompt": "a"}', {"Content-Type": "text/plain"})[0] == 400
    for host in ("rebound.example", "localhost.rebound.example", "127.0.0.1.rebound.example", "[::1", ""):
        assert server.ask("/v1/models", headers={"Host": host})[0] == 400, host
    for path, status in (("/v1/completions", 413), ("/nothing", 404)):  # answered before their end, and not reset
        assert server.ask(path, b" " * (40 * 2**20))[0] == status
    for many in (b"[" * 70_000 + b":" * 70_000, b"{" * 140_000):  # a second of work where all others wait
        status, said = server.ask("/v1/completions", b'{"user": "' + many + b'"}')
        assert status == 413 and "more than 131072 brackets and colons" in said
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
        for _ in range(5):  # no end: it answers all the same
            connection.sendall(chunk)
        assert b" 413 " in connection.recv(100)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(
            HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (4 * 2**20 + 1)
        )  # and no body
        assert b" 413 " in (answer := connection.recv(1000)) and b"connection: close" in answer


def test_what_comes_together_is_answered_together_and_nothing_is_mixed(server, client):
    def ask(number: int) -> str:
        model = ("base", "poems")[number % 2]
        return client.completions.create(model=model, prompt=f"slow {number}").choices[0].text

    assert server.ask("/health") == (200, '{"status":"ok"}')
    batches, poems = server.metric("batch_rows_count"), 'requests_total{model="poems",outcome="answered"}'
    before = server.metric(poems)
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(ask, range(32))) == [f"<slow {number}>" for number in range(32)]
    assert server.metric("batch_rows_count") - batches <= 16  # of four at most, two models
    assert server.metric(poems) == before + 16 and server.metric('completion_tokens_total{model="poems"}') > 0


def test_a_full_queue_answers_429_and_a_client_that_left_frees_its_place():
    server = start_fake(places=2)
    client = server.client()
    stream = client.completions.create(model="base", prompt="slow endless", stream=True, max_tokens=2000)
    next(iter(stream))
    left = [_leave_behind(server) for _ in range(2)]
    server.wait_for("waiting_rows", 2)
    with pytest.raises(openai.RateLimitError, match="2 of 2 places of the queue are taken"):
        client.completions.create(model="base", prompt="a")
    assert server.ask("/health")[0] == 200
    for connection in left:
        connection.close()
    server.wait_for("waiting_rows", 0)
    stream.close()
    server.wait_for("running_rows", 0)
    assert client.completions.create(model="base", prompt="a").choices[0].text == "<a>"
    assert server.stop() == 0


@pytest.mark.long
def test_connections_that_ask_nothing_leave_room_for_others():
    server = start_fake()
    psutil.Process(server.process.pid).rlimit(psutil.RLIMIT_NOFILE, (200, 200))
    working = _leave_behind(server)
    server.wait_for("running_rows", 1)
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(400)]
    assert server.ask("/health")[0] == 200
    assert idle[0].recv(1) == b"" and server.metric("running_rows") == 1
    for connection in (working, *idle):
        connection.close()
    assert server.stop() == 0 and "".join(server.said).count("\n") == 1


def _leave_behind(server) -> socket.socket:
    """A request whose answer nobody reads yet."""
    body = json.dumps({"model": "base", "prompt": "slow endless", "max_tokens": 2000}).encode()
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def test_a_server_ends_with_the_thread_that_answers():
    server = start_fake(seconds=60)
    status, text = server.ask("/v1/completions", {"model": "base", "prompt": "quit", "n": 5})  # one waits behind four
    assert status == 500 and "the batch of this request failed" in text
    assert server.process.wait(timeout=30) == 1
    assert "EngineEnded" in "".join(server.said)


@pytest.mark.long
def test_time_outs_and_keys():
    server = start_fake(seconds=0.3, key="secret")
    with pytest.raises(openai.AuthenticationError, match="Authorization: Bearer"):
        server.client("wrong").models.list()
    assert server.ask("/health")[0] == 200 and server.ask("/")[0] == 200
    assert server.ask("/metrics")[0] == 401
    client = server.client("secret")
    with pytest.raises(openai.APIStatusError) as error:
        client.completions.create(model="base", prompt="slow endless", max_tokens=2000)
    assert error.value.status_code == 504
    with pytest.raises(openai.APIStatusError) as error:
        client.completions.create(model="base", prompt="stuck")
    assert error.value.status_code == 504
    assert server.metric("running_rows", "secret") == 1  # the model still computes, and nobody waits for it
    server.wait_for("running_rows", 0, "secret")
    events = client.completions.create(model="base", prompt="slow endless", max_tokens=2000, stream=True)
    with pytest.raises(openai.APIError, match="not answered within"):
        list(events)
    assert client.completions.create(model="base", prompt="a").choices[0].text == "<a>"
    with (
        grpc.insecure_channel(server.grpc) as channel,
        pytest.raises(grpc.RpcError, match="not answered within") as error,
    ):
        ask = messages.CompleteRequest(model="base", prompts=["slow endless"])
        stubs.GenerationStub(channel).Complete(ask, metadata=(("authorization", "Bearer secret"),))
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert server.stop() == 0


def is_refused(server) -> bool:
    """Whether a new call by gRPC is."""
    with grpc.insecure_channel(server.grpc) as channel:
        try:
            stubs.GenerationStub(channel).Complete(messages.CompleteRequest(model="base", prompts=["a"]), timeout=10)
        except grpc.RpcError as error:
            return error.code() is grpc.StatusCode.UNAVAILABLE
    return False


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_answers_what_was_asked_takes_no_more_and_says_nothing(how):
    server = start_fake()
    prompt, replies = f"slow {'x' * 100}", []

    def ask() -> None:
        reply = server.client().completions.create(model="base", prompt=prompt, max_tokens=200)
        replies.append(reply.choices[0].text)

    asking = threading.Thread(target=ask)
    asking.start()
    server.wait_for("running_rows", 1)
    server.process.send_signal(how)
    while not is_refused(server):
        pass
    assert replies == []  # it does not wait for what is asked by the other protocol
    assert server.process.wait(timeout=60) == 0
    asking.join()
    assert replies == [f"<{prompt}>"]
    assert "".join(server.said).count("\n") == 1  # "ready": no traceback, no noise


def test_a_server_ends_in_time_whatever_it_computes(tmp_path):
    server = start_fake(end_seconds=0.5)
    heavy = {"model": "base", "prompt": f"heavy {tmp_path}"}
    asking = threading.Thread(target=lambda: pytest.raises(OSError, server.ask, "/v1/completions", heavy))
    asking.start()
    wait_for((tmp_path / "begun").exists)
    assert server.stop() == 1
    asking.join()
    assert "error: a computation has not ended within 0.5 s: it is cut off" in "".join(server.said)
    assert not (tmp_path / "go").exists()


def test_a_port_that_another_took_while_the_models_were_loaded_is_named():
    other = bind(Addresses("127.0.0.1", 0, 0))
    addresses = Addresses("127.0.0.1", other.getsockname()[1], 0)
    ours = bind(addresses)  # nobody listens yet
    other.listen()
    service = Service({}, WholeBatches({}, 1), RequestLimits(answer=1, places=1, seconds=1.0))
    with pytest.raises(UserError, match=f"--port {addresses.port}: Address already in use"):
        run(service, ours, addresses, None, lambda port, grpc_port: pytest.fail("said to be ready"))
