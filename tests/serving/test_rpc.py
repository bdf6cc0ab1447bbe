"""gRPC in front of a fake model, by stubs: answers, streams, statuses, health, reflection."""

import asyncio
import subprocess
import sys
import time

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from launch.serving.rpc import generation_pb2 as messages
from launch.serving.rpc import generation_pb2_grpc as stubs
from launch.serving.rpc import server as rpc_server
from tests.serving.servers import ROOT, start_fake

SERVICE = "paddle_llm_recipes.v1.Generation"


@pytest.fixture(scope="module")
def server():
    server = start_fake(places=4, key="secret")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


@pytest.fixture(scope="module")
def stub(channel):
    return stubs.GenerationStub(channel)


KEY = (("authorization", "Bearer secret"),)


def completion(*prompts, model="base", **options):
    return messages.CompleteRequest(model=model, prompts=prompts, options=messages.Options(**options))


def chat(*contents, **options):
    roles = ["user", "assistant"] * len(contents)
    turns = [messages.Message(role=role, content=content) for role, content in zip(roles, contents, strict=False)]
    return messages.ChatRequest(model="poems", messages=turns, options=messages.Options(**options))


def test_models_answers_and_streams(stub):
    assert list(stub.ListModels(messages.ListModelsRequest(), metadata=KEY).names) == ["base", "poems"]
    reply = stub.Complete(completion("字", "b", n=2, stop=[">"]), metadata=KEY)
    assert [answer.text for answer in reply.answers] == ["<字", "<字", "<b", "<b"]
    assert {answer.finish for answer in reply.answers} == {messages.FINISH_STOP}
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (8, 16)
    [answer] = stub.Chat(chat("a", "b", "c", max_tokens=3), metadata=KEY).answers
    assert (answer.text, answer.finish) == ("<a|", messages.FINISH_LENGTH)
    chunks = list(stub.CompleteStream(completion("字😀", "é"), metadata=KEY))
    assert [chunk.text for chunk in chunks if chunk.index == 0 and chunk.text] == ["<", "字", "😀", ">"]
    assert "".join(chunk.text for chunk in chunks if chunk.index == 1) == "<é>"
    assert [chunk.finish for chunk in chunks].count(messages.FINISH_STOP) == 2
    assert [chunk.HasField("usage") for chunk in chunks].index(True) == len(chunks) - 1
    assert chunks[-1].usage.completion_tokens == 9 + 4
    assert "".join(chunk.text for chunk in stub.ChatStream(chat("é"), metadata=KEY)) == "<é>"


CALL = '<tool_call>\n{"name": "tide_at", "arguments": {"port": "Orrin 港"}}\n</tool_call>'
TIDE = messages.Tool(name="tide_at", parameters='{"type": "object", "properties": {"port": {"type": "string"}}}')


def test_calls_and_reasoning_are_apart_as_over_rest(stub):
    """The fake model says what it is asked, in < and >."""
    asks = chat(f"think>Is it 港?\n</think>\n\nI look.\n{CALL}\n{CALL}")
    asks.tools.append(TIDE)
    [answer] = stub.Chat(asks, metadata=KEY).answers
    assert (answer.text, answer.reasoning_content) == ("I look.>", "Is it 港?")
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [("tide_at", '{"port": "Orrin 港"}')] * 2
    assert answer.finish == messages.FINISH_TOOL_CALLS and len({call.id for call in answer.tool_calls}) == 2
    chunks = list(stub.ChatStream(asks, metadata=KEY))
    assert "".join(chunk.text for chunk in chunks) == answer.text
    assert "".join(chunk.reasoning_content for chunk in chunks) == answer.reasoning_content
    assert [len(chunk.tool_calls) for chunk in chunks if chunk.tool_calls] == [1, 1]
    assert chunks[-1].finish == messages.FINISH_TOOL_CALLS
    asks.tool_choice = "none"
    [answer] = stub.Chat(asks, metadata=KEY).answers
    assert CALL in answer.text and not answer.tool_calls
    call = messages.ToolCall(id="1", name="tide_at", arguments='{"port": "Orrin"}')
    told = messages.Message(role="tool", tool_call_id="1", content="2.7")
    asks = chat("How high?", "")
    asks.messages[1].tool_calls.append(call)
    asks.messages.append(told)
    assert stub.Chat(asks, metadata=KEY).answers[0].text == "<How high?||2.7>"


def odd(content="a", **more):
    return messages.ChatRequest(model="poems", messages=[messages.Message(role="user", content=content)], **more)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (odd(tools=[messages.Tool(name="f", parameters="{")]), "tools: parameters of f: not JSON, Expecting property"),
        (odd(tools=[messages.Tool(name="f", parameters="[]")]), "tools.0.function.parameters: found a list"),
        (odd(tools=[messages.Tool(name="f", parameters="[" * 131_073)]), "brackets and colons: found 131,073"),
        (odd(tools=[messages.Tool()] * 16_385), "tools: found 16,385, expected at most 16,384"),
        (odd(tools=[TIDE], tool_choice="sail"), "tool_choice: found sail, the tools are tide_at"),
        (odd(tool_choice="required"), "tool_choice: found required, the tools are none"),
        (messages.ChatRequest(model="poems", messages=[messages.Message(role="a")]), "messages.0.role: found 'a', exp"),
        (messages.ChatRequest(model="poems", messages=[messages.Message(tool_calls=[messages.ToolCall()] * 16_385)]),
         "tool_calls: found 16,385, expected at most 16,384"),
        (messages.ChatRequest(messages=[messages.Message(tool_calls=[messages.ToolCall(arguments="[" * 131_073)])]),
         "brackets and colons: found 131,073"),
    ],
)  # fmt: skip
def test_what_is_no_chat_is_refused_as_over_rest(stub, request_, said):
    code, details = refused(lambda: stub.Chat(request_, metadata=KEY))
    assert (code.name, said in details) == ("INVALID_ARGUMENT", True), details


def refused(call) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code(), error.value.details()


@pytest.mark.parametrize(
    ("request_", "code", "said"),
    [
        (completion("a", model="nobody"), "NOT_FOUND", "found 'nobody', there are base, poems"),
        (completion("a", temperature=-1), "INVALID_ARGUMENT", "temperature: found -1.0"),
        (completion("a", temperature=float("nan")), "INVALID_ARGUMENT", "temperature: found nan"),
        (completion("a", n=-1), "INVALID_ARGUMENT", "n: found -1"),
        (completion("a", max_tokens=0), "INVALID_ARGUMENT", "max_tokens: found 0"),
        (completion(), "INVALID_ARGUMENT", "prompt: 0 answers wanted"),
        (completion("fail"), "INTERNAL", "the batch of this request failed"),
        (completion("x" * (4 * 2**20 + 1)), "RESOURCE_EXHAUSTED", "larger than max"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_is_wrong_has_its_status(stub, request_, code, said):
    for method in (stub.Complete, lambda *args, **more: list(stub.CompleteStream(*args, **more))):
        found, details = refused(lambda: method(request_, metadata=KEY))
        assert (found.name, said in details) == (code, True), details


def test_a_call_without_the_key_health_and_reflection(stub, channel):
    for metadata in ((), (("authorization", "Bearer wrong"),)):
        code, _ = refused(lambda: stub.Complete(completion("a"), metadata=metadata))
        assert code is grpc.StatusCode.UNAUTHENTICATED
    check = health_pb2_grpc.HealthStub(channel).Check
    for name in ("", SERVICE):
        assert check(health_pb2.HealthCheckRequest(service=name)).status == health_pb2.HealthCheckResponse.SERVING
    found = ProtoReflectionDescriptorDatabase(channel)
    assert SERVICE in found.get_services()
    service = DescriptorPool(found).FindServiceByName(SERVICE)
    methods = ["Complete", "CompleteStream", "Chat", "ChatStream", "ListModels"]
    assert [method.name for method in service.methods] == methods


def test_a_full_queue_and_a_cancelled_call(stub):
    running = stub.CompleteStream(completion("slow endless"), metadata=KEY)
    next(running)
    waiting = [stub.Complete.future(completion("slow endless"), metadata=KEY) for _ in range(4)]
    until(lambda: asked(stub, "slow endless") is grpc.StatusCode.RESOURCE_EXHAUSTED)
    for call in (*waiting, running):
        call.cancel()
    until(lambda: asked(stub, "a") is grpc.StatusCode.OK)


def asked(stub, prompt: str) -> grpc.StatusCode:
    """How a call ends that does not wait for long."""
    try:
        stub.Complete(completion(prompt), metadata=KEY, timeout=0.05)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def until(happens) -> None:
    deadline = time.monotonic() + 20
    while not happens():
        assert time.monotonic() < deadline


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Of HTTP/2 (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def half_a_message() -> bytes:
    """The beginning of a connection, a call of Complete and 10 bytes of the 100 that its message is to have."""
    headers = {
        ":method": "POST", ":scheme": "http", ":path": f"/{SERVICE}/Complete", ":authority": "here",
        "te": "trailers", "content-type": "application/grpc",
    }  # fmt: skip
    literals = b"".join(
        b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in pair) for pair in headers.items()
    )
    message = b"\0" + (100).to_bytes(4, "big") + bytes(10)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    return preface + frame(4, 0, 0, b"") + frame(1, 4, 1, literals) + frame(0, 0, 1, message)


async def is_closed_within(seconds: float) -> bool:
    """Whether the server ends a connection on which half a message has come and nothing more."""
    server = rpc_server.RpcServer(None, "127.0.0.1:0", None)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(half_a_message())
    try:
        assert await asyncio.wait_for(reader.read(), seconds)  # to the end of the connection; pings are among it
        return True
    except asyncio.TimeoutError:
        return False
    finally:
        writer.close()
        await server.stop(0)


def test_a_message_that_is_never_finished_ends_with_its_connection(monkeypatch):
    """After its age and the time for calls that run, here of a second each."""
    ages = {name: 1000 for name in rpc_server.LIMITS if "connection_age" in name}
    monkeypatch.setattr(rpc_server, "LIMITS", rpc_server.LIMITS | ages)
    assert asyncio.run(is_closed_within(20))


@pytest.mark.nightly
def test_the_stubs_are_what_the_command_in_the_proto_makes(tmp_path):
    """grpcio-tools is among requirements/compare.txt."""
    pytest.importorskip("grpc_tools")
    lines = (ROOT / "launch/serving/rpc/generation.proto").read_text().splitlines()
    [command] = [line.strip("/ ") for line in lines if "-m grpc_tools.protoc" in line]
    words = command.replace("_out=.", f"_out={tmp_path}").split()
    subprocess.run([sys.executable, *words[1:]], cwd=ROOT, check=True)
    made = sorted(tmp_path.rglob("*.py"))
    assert len(made) == 2
    for path in made:
        assert path.read_text() == (ROOT / path.relative_to(tmp_path)).read_text()
