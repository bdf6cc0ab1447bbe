"""Requests that are made to keep a server busy, or to reach its internals: refused at once, in few words."""

import asyncio
import json
import re
from types import SimpleNamespace

import grpc
import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from launch.serving import rest
from launch.serving.request import MOST_ITEMS
from launch.serving.rest_requests import MOST_KEYS, ChatRequest, CompletionRequest, RequestMessage
from launch.serving.rpc import generation_pb2 as messages
from launch.serving.rpc import server as rpc_server
from launch.studio.app import api_of, make_app
from launch.studio.runs import Runs
from launch.studio.trying import Trial

MANY = 10_000
HALF = "\ud800"
# Each could be an error an entry.
HOSTILE = {
    "numbers": [1.5] * MANY,
    "objects": [{}] * MANY,
    "nulls": [None] * MANY,
    "texts and numbers": ["a", 1.5] * MANY,
    "lists": [[1.5]] * MANY,
    "list of numbers": [[1.5] * MANY],
    "empty lists": [[]] * (2 * MANY),
    "keys": {str(key): {} for key in range(MANY)},
    "odd keys": {f"[{key}": "x" for key in range(MANY)},
    "half a character": [HALF] * MANY,
    "parts": [{"role": "user", "content": [{"type": "text", "text": 1}] * MANY}] * 2,
    "odd messages": [{"role": "user", "content": "a", str(key): {}} for key in range(MANY)],
}
COMPLETION = {"model": "base", "prompt": "a"}
CHAT = {"model": "base", "messages": [{"role": "user", "content": "a"}]}
FIELDS = [
    *(("completions", name) for name in (*CompletionRequest.model_fields, "unknown")),
    *(("chat/completions", name) for name in ChatRequest.model_fields),
]


@pytest.fixture(scope="module")
def client():
    """What is refused here reaches no service."""
    return TestClient(rest.make_app(None), base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.mark.parametrize(("path", "field"), FIELDS)
def test_no_field_makes_an_error_an_entry(client, path, field):
    kind, body = (CompletionRequest, COMPLETION) if path == "completions" else (ChatRequest, CHAT)
    for name, value in HOSTILE.items():
        with pytest.raises(ValidationError) as found:
            kind.model_validate(body | {field: value})
        assert found.value.error_count() <= 4, (name, found.value.error_count())
    for value in ([1.5], [{}], {"\ud800": {}}, [HALF]):
        reply = client.post(f"/v1/{path}", content=json.dumps(body | {field: value}))
        message = reply.json()["error"]["message"]
        assert reply.status_code == 400 and "function-" not in message and "list[" not in message, message
    long = "Z" * 5000
    for value in (long, [long], {long: long}, [{long: 1}], 1.5, None):
        message = client.post(f"/v1/{path}", json=body | {field: value}).json()["error"]["message"]
        assert message.count("Z") <= 200 and not re.search("Input|Value error|Field|Extra|valid|dict", message), message


def test_no_object_of_a_request_has_many_keys_and_no_list_of_texts_many_entries():
    keys = {str(key): None for key in range(MOST_KEYS + 1)}
    for body, said in [
        (COMPLETION | keys, "keys"),
        (COMPLETION | {"response_format": keys}, "keys"),
        (COMPLETION | {"response_format": {"type": "json_schema", "json_schema": keys}}, "keys"),
        (COMPLETION | {"stream_options": keys}, "keys"),
        (COMPLETION | {"logit_bias": dict.fromkeys(keys, 1.0)}, "keys"),
        (COMPLETION | {"prompt": ["a"] * (MOST_ITEMS + 1)}, "at most"),
        (COMPLETION | {"prompt": [1] * (2**20 + 1)}, "at most"),
        (COMPLETION | {"stop": ["a"] * (MOST_ITEMS + 1)}, "at most"),
        (COMPLETION | {"prompt": [[]] * (MOST_ITEMS + 1)}, "at most"),
    ]:
        with pytest.raises(ValidationError, match=said):
            CompletionRequest.model_validate(body)
    for message in (keys | CHAT["messages"][0], {"role": "user", "content": [keys | {"type": "text", "text": "a"}]}):
        with pytest.raises(ValidationError, match="keys"):
            RequestMessage.model_validate(message)
    with pytest.raises(ValidationError, match="at most"):
        ChatRequest.model_validate(CHAT | {"messages": CHAT["messages"] * (MOST_ITEMS + 1)})
    assert CompletionRequest.model_validate(COMPLETION | {"prompt": [1] * 2**20, "logit_bias": {"5": 1}}).logit_bias


def test_a_message_about_a_long_value_is_short(client):
    for more in ({"x" * 100_000: 1}, {"logit_bias": {"\x1b" * 100_000: 1}}, {"response_format": {"y" * 9999: 1}}):
        reply = client.post("/v1/completions", json=COMPLETION | more)
        assert reply.status_code == 400 and len(reply.text) < 3000 and "\x1b" not in reply.json()["error"]["message"]


def test_grpc_takes_no_compressed_message_none_that_is_no_message_and_none_of_many_entries():
    many, refused = MOST_ITEMS + 1, ("INVALID_ARGUMENT", "at most")
    asks, stops = messages.CompleteRequest, messages.Options(stop=[""] * many)
    cases = [
        ("Complete", b"\xff\xff", None, "INVALID_ARGUMENT", "no message"),
        ("ChatStream", b"\x08\x96\x01\xff", None, "INVALID_ARGUMENT", "no message"),
        ("Complete", asks(model="m").SerializeToString(), grpc.Compression.Gzip, "UNIMPLEMENTED", "ompress"),
        ("Complete", asks(prompts=[""] * many).SerializeToString(), None, *refused),
        ("Complete", asks(options=stops).SerializeToString(), None, *refused),
        ("Chat", messages.ChatRequest(messages=[messages.Message()] * many).SerializeToString(), None, *refused),
    ]

    async def ask() -> list[tuple[str, str]]:
        server = rpc_server.RpcServer(SimpleNamespace(complete=None, chat=None), "127.0.0.1:0", None)
        await server.start()
        found = []
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            for method, content, compression, *_ in cases:
                path = f"/paddle_llm_recipes.v1.Generation/{method}"
                call = channel.unary_stream(path)(content, compression=compression, timeout=20)
                try:
                    found.append(("OK", str([one async for one in call])))
                except grpc.aio.AioRpcError as error:
                    found.append((error.code().name, error.details()))
        await server.stop(0)
        return found

    for (*_, code, said), (status, details) in zip(cases, asyncio.run(ask()), strict=True):
        assert status == code and said in details, (status, details)


def test_the_studio_refuses_half_a_character_and_many_keys_in_every_request():
    runs, trial = Runs(), Trial()
    app = make_app("token", runs, trial, slow=None)
    studio = TestClient(app, base_url="http://127.0.0.1:8020", raise_server_exceptions=False)
    paths = [route.path for route in api_of("token", runs, trial, None).routes if "POST" in route.methods]
    assert len(paths) == 21
    keys = {str(key): 1 for key in range(MANY)}
    half = {"recipe": "lora-qwen3-8b", "MODEL": HALF, "ARGS": HALF}
    bodies = [
        half,
        {name: HALF for name in ("output", "name", "folder", "model", "prompt")} | {"chat": True},
        {HALF: "a"},
        keys,
        {"model": keys},
        {name: "Z" * 3000 for name in ("recipe", "output", "name", "folder", "model", "prompt")} | {"chat": True},
    ]
    for path in paths:
        if path in ("/api/trial/stop", "/api/demo"):  # which read nothing
            continue
        for body in bodies:
            reply = studio.post(path, headers={"Authorization": "Bearer token"}, content=json.dumps(body))
            assert reply.status_code in (400, 422) and reply.text.count("Z") <= 200, (
                path,
                reply.status_code,
                reply.text,
            )
