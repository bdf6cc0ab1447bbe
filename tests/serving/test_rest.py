"""REST in front of a fake model, by the official client and by hand: answers, streams, limits, mistakes, the end."""

import json
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import openai
import pytest

from launch.errors import UserError
from launch.serving.event_loop import Addresses, bind, run
from launch.serving.rpc import generation_pb2 as messages
from launch.serving.rpc import generation_pb2_grpc as stubs
from launch.serving.service import Limits, Service
from launch.serving.whole_batches import WholeBatches
from tests.processes.waiting import wait_for
from tests.serving.servers import start_fake


@pytest.fixture(scope="module")
def server():
    server = start_fake()
    yield server
    assert server.process.poll() is None, "".join(server.said)
    assert server.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    return server.client()


def test_models(client):
    assert [model.id for model in client.models.list()] == ["base", "poems"]
    assert client.models.retrieve("poems").id == "poems"


def test_a_completion_and_its_usage(client):
    reply = client.completions.create(model="base", prompt="字 é", max_tokens=100)
    [choice] = reply.choices
    assert (choice.text, choice.finish_reason) == ("<字 é>", "stop")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (6, 8, 14)


def test_sixteen_tokens_without_max_tokens_as_the_api_has_it(client):
    reply = client.completions.create(model="base", prompt="x" * 20)
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == ("<" + "x" * 15, "length")


def test_several_prompts_and_several_answers_come_in_order(client):
    reply = client.completions.create(model="base", prompt=["a", "b"], n=2)
    assert [(choice.index, choice.text) for choice in reply.choices] == [(0, "<a>"), (1, "<a>"), (2, "<b>"), (3, "<b>")]
    assert client.completions.create(model="base", prompt=[97, 98]).choices[0].text == "<ab>"
    assert client.completions.create(model="base", prompt=[[97], [98]]).choices[1].text == "<b>"


def test_a_chat_and_its_parts(client):
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    reply = client.chat.completions.create(model="poems", messages=messages)
    [choice] = reply.choices
    assert (reply.model, choice.message.content, choice.finish_reason) == ("poems", "<s|ab>", "stop")
    [choice] = client.chat.completions.create(model="poems", messages=messages, max_completion_tokens=2).choices
    assert (choice.message.content, choice.finish_reason) == ("<s", "length")


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


def test_a_streamed_chat(client):
    messages = [{"role": "user", "content": "é"}]
    events = list(client.chat.completions.create(model="base", messages=messages, stream=True))
    assert events[0].choices[0].delta.role == "assistant"
    assert "".join(event.choices[0].delta.content or "" for event in events) == "<é>"


def test_stop_words_end_an_answer_and_are_no_part_of_it(client):
    reply = client.completions.create(model="base", prompt="one two three", stop=["wo ", "hree"])
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == ("<one t", "stop")
    assert reply.usage.completion_tokens == 9  # those that were looked at
    events = client.completions.create(model="base", prompt="one two endless", stop="two", stream=True, max_tokens=99)
    assert "".join(event.choices[0].text for event in events) == "<one "


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "JSON"),
        (b"\xff\xfe", 400, ""),
        (b"[" * 100_000, 400, ""),
        ({}, 400, "model: Field required"),
        ({"model": "base"}, 400, "prompt: Field required"),
        ({"model": "nobody", "prompt": "a"}, 404, "found 'nobody', there are base, poems"),
        ({"model": "base", "prompt": 7}, 400, "prompt"),
        ({"model": "base", "prompt": []}, 400, "prompt: 0 answers wanted"),
        ({"model": "base", "prompt": ""}, 400, "no token to begin with"),
        ({"model": "base", "prompt": "a", "temperature": -1}, 400, "temperature: found -1.0, expected"),
        ({"model": "base", "prompt": "a", "temperature": "hot"}, 400, "temperature: Input should be a valid number"),
        ({"model": "base", "prompt": "a", "top_p": 0}, 400, "top_p: found 0.0, expected above 0, at most 1"),
        ({"model": "base", "prompt": "a", "top_k": -1}, 400, "top_k: found -1"),
        ({"model": "base", "prompt": "a", "max_tokens": 0}, 400, "max_tokens: found 0"),
        ({"model": "base", "prompt": "a", "max_tokens": 2001}, 400, "max_tokens: found 2001, at most 2000 (--max"),
        ({"model": "base", "prompt": "a" * 4000, "max_tokens": 97}, 400, "of the prompt there are positions for 96"),
        ({"model": "base", "prompt": "a" * 4096, "max_tokens": 1}, 400, "prompt: 4096 tokens leave no position"),
        ({"model": "base", "prompt": "a", "n": 65}, 400, "n: found 65, at most 64"),
        ({"model": "base", "prompt": "a", "stop": ["x"] * 17}, 400, "stop: found 17, expected at most 16"),
        (b'{"model": "base", "prompt": "\\ud800"}', 400, "half a surrogate pair"),
        (b'{"model": "base", "prompt": "a", "stop": "\\udfff"}', 400, "stop.0: Value error, half a surrogate"),
        (b'{"model": "base", "prompt": "a", "temperature": NaN}', 400, "temperature: found nan"),
        (b'{"model": "base", "prompt": "a", "max_tokens": 1e999}', 400, "max_tokens"),
        ({"model": "base", "prompt": "a", "seed": 10**30, "top_k": 10**18}, 200, "<a>"),
        ({"model": "base", "prompt": "a", "stop": ""}, 400, "stop: found '', expected texts of 1 to"),
        ({"model": "base", "prompt": "a", "suffix": "b", "best_of": 2}, 400, "by this server: best_of, suffix"),
        ({"model": "base", "prompt": "a", "logit_bias": {"5": 101}}, 400, "logit_bias: found 101.0 for id 5, expected"),
        ({"model": "base", "prompt": "a", "logit_bias": {"five": 1}}, 400, "logit_bias.five"),
        ({"model": "base", "prompt": "a", "logit_bias": {"999": 1}}, 400, "logit_bias: found id 999"),
        ({"model": "base", "prompt": "a", "presence_penalty": -2.1}, 400, "presence_penalty: found -2.1, expected -2"),
        ({"model": "base", "prompt": "a", "frequency_penalty": 2, "logit_bias": {"97": -1}}, 200, "<a>"),
        ({"model": "base", "prompt": "a", "tomorrow": 0}, 400, "not understood by this server: tomorrow"),
        ({"model": "base", "prompt": "a", "stream_options": {"include_usage": True}}, 400, "without stream: true"),
        ({"model": "base", "prompt": "a", "stream": True, "stream_options": {"all": 1}}, 400, "stream_options.all"),
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
    ("messages", "said"),
    [
        ([], "messages"),
        ([{"role": "poet", "content": "a"}], "role"),
        ([{"role": "assistant", "content": "a"}], "user"),
        (
            [{"role": "user", "content": "a", "name": "Ann"}],
            "messages.0: Value error, not understood by this server: name",
        ),
        ([{"role": "user", "content": "a", "tool_calls": [{"id": "1"}]}], "tool_calls"),
        ([{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]}], "cache_control"),
    ],
)
def test_chats_that_ask_nothing(server, messages, said):
    status, text = server.ask("/v1/chat/completions", {"model": "base", "messages": messages})
    assert status == 400 and said in json.loads(text)["error"]["message"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"max_completion_tokens": 0}, "max_completion_tokens: found 0"),
        ({"max_completion_tokens": 2, "max_tokens": 3}, "max_completion_tokens: found 2, and max_tokens: 3"),
        ({"response_format": {"type": "json_object"}}, 'response_format: found {"type": "object"}'),
        ({"response_format": {"type": "json_schema"}}, "json_schema: expected with type json_schema"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"logprobs": 0}, "logprobs: Input should be a valid boolean"),
        ({"tools": [{"type": "function"}], "tool_choice": "required"}, "by this server: tool_choice, tools"),
        ({"reasoning_effort": "low"}, "not understood by this server: reasoning_effort"),
        ({"modalities": ["text", "audio"]}, "not understood by this server: modalities"),
    ],
    ids=str,
)
def test_a_chat_is_not_answered_otherwise_than_asked(server, more, said):
    body = {"model": "base", "messages": [{"role": "user", "content": "a"}]} | more
    status, text = server.ask("/v1/chat/completions", body)
    assert status == 400 and said in json.loads(text)["error"]["message"], text


def test_a_chat_may_say_that_it_wants_nothing_and_send_back_what_it_was_given(server):
    given = {"role": "assistant", "content": "b", "refusal": None, "annotations": [], "tool_calls": None, "audio": None}
    messages = [{"role": "user", "content": "a"}, given, {"role": "user", "content": "c"}]
    nothing = {"response_format": {"type": "text"}, "tools": [], "tool_choice": "auto", "logprobs": False}
    nothing |= {"parallel_tool_calls": True, "presence_penalty": 0.0, "modalities": ["text"], "safety_identifier": "me"}
    status, text = server.ask("/v1/chat/completions", {"model": "base", "messages": messages} | nothing)
    assert status == 200 and json.loads(text)["choices"][0]["message"]["content"] == "<a|b|c>", text


def test_a_row_that_fails_its_batch_fails_alone(server, client):
    """Also one that fails after some tokens: the others go on behind theirs."""

    def ask(prompt: str) -> str:
        try:
            return client.completions.create(model="base", prompt=prompt, max_tokens=100).choices[0].text
        except openai.InternalServerError:
            return "500"

    prompts = ["slow first", "fail", "good", "break", "slow good"]
    with ThreadPoolExecutor(8) as pool:
        before = pool.submit(ask, prompts[0])
        server.wait_for("running_rows", 1)  # the others wait, and go together
        assert list(pool.map(ask, prompts[1:])) == ["500", "<good>", "500", "<slow good>"]
        assert before.result() == "<slow first>"


def test_valid_requests_that_are_too_long_together_are_all_answered(server, client):
    """A prompt of 4000 and an answer of 96 tokens; an answer of 2000: padded together more than 4096 positions."""

    def ask(prompt: str, most: int) -> int:
        return client.completions.create(model="base", prompt=prompt, max_tokens=most).usage.completion_tokens

    with ThreadPoolExecutor(4) as pool:
        before = pool.submit(ask, "slow first", 100)
        server.wait_for("running_rows", 1)
        failed = server.metric('requests_total{model="base",outcome="failed"}')
        long, short = pool.submit(ask, "a" * 4000, 96), pool.submit(ask, "endless", 2000)
        assert (long.result(), short.result(), before.result()) == (96, 2000, 12)
    assert server.metric('requests_total{model="base",outcome="failed"}') == failed


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


def test_headers_and_bodies_that_do_not_end_are_ended():
    server = start_fake(client_seconds=0.5)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    cases = [
        (b"", b""),
        (head, b""),
        (head + b"Content-Length: 100\r\n\r\n{", b" 408 "),
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


def test_other_paths_methods_and_kinds_of_body(server):
    assert server.ask("/v1/nothing")[0] == 404
    assert server.ask("/v1/completions")[0] == 405
    assert server.ask("/v1/models/nobody")[0] == 404
    assert server.ask("/v1/completions", b'{"model": "base", "prompt": "a"}', {"Content-Type": "text/plain"})[0] == 400


def test_a_body_that_is_too_large_is_not_read_to_its_end(server):
    assert server.ask("/v1/completions", b" " * (4 * 2**20 + 1))[0] == 413
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
        for _ in range(5):  # no end: it answers all the same
            connection.sendall(chunk)
        assert b" 413 " in connection.recv(100)


def test_a_name_of_somebody_else_is_not_answered_to(server):
    assert server.ask("/v1/models", headers={"Host": "rebound.example"})[0] == 400


def test_health_and_metrics(server, client):
    assert server.ask("/health") == (200, '{"status":"ok"}')
    before = server.metric('requests_total{model="poems",outcome="answered"}')
    client.completions.create(model="poems", prompt="a")
    assert server.metric('requests_total{model="poems",outcome="answered"}') == before + 1
    assert server.metric('completion_tokens_total{model="poems"}') > 0


def test_what_comes_together_is_answered_together_and_nothing_is_mixed(server, client):
    def ask(number: int) -> str:
        model = ("base", "poems")[number % 2]
        return client.completions.create(model=model, prompt=f"slow {number}").choices[0].text

    batches = server.metric("batch_rows_count")
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(ask, range(32))) == [f"<slow {number}>" for number in range(32)]
    assert server.metric("batch_rows_count") - batches <= 16  # of four at most, two models


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


def _leave_behind(server) -> socket.socket:
    """A request whose answer nobody reads yet."""
    body = json.dumps({"model": "base", "prompt": "slow endless", "max_tokens": 2000}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def test_a_server_ends_with_the_thread_that_answers():
    """Not half alive, and nobody waits for an answer that will not come."""
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


def test_a_port_that_another_took_while_the_models_were_loaded_is_named():
    other = bind(Addresses("127.0.0.1", 0, 0))
    addresses = Addresses("127.0.0.1", other.getsockname()[1], 0)
    ours = bind(addresses)  # nobody listens yet
    other.listen()
    service = Service({}, WholeBatches({}, 1), Limits(answer=1, places=1, seconds=1.0))
    with pytest.raises(UserError, match=f"--port {addresses.port}: Address already in use"):
        run(service, ours, addresses, None, lambda port, grpc_port: pytest.fail("said to be ready"))
