"""The gRPC server: the methods of generation.proto, with health and reflection."""

# pyright: reportAttributeAccessIssue=false
# generation_pb2 makes its classes when it is imported, and grpc_health.v1.health has its aio behind a condition.

from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import grpc
from fastapi.exceptions import RequestValidationError
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from pydantic import ValidationError

from data_tools.dialogues.messages import ToolCall
from data_tools.formats.json_files import NotJson, parse_json, shown
from launch.generation.answer_parts import AnswerReader, Said
from launch.serving.answer import Answer, call_id, read_piece
from launch.serving.chats import Chat
from launch.serving.request import MOST_ITEMS, Finish, Options, Reason, Refusal
from launch.serving.rest_requests import LARGEST_BODY, MOST_MARKS, ChatRequest, first_error, right_key
from launch.serving.rpc import generation_pb2 as messages
from launch.serving.rpc import generation_pb2_grpc as stubs
from launch.serving.service import Service

FINISHES = {
    None: messages.FINISH_UNSPECIFIED,
    Finish.STOP: messages.FINISH_STOP,
    Finish.LENGTH: messages.FINISH_LENGTH,
}


class Servicer(stubs.GenerationServicer):
    """Each method as generation.proto describes it.

    Attributes:
        key: What clients must send; None: no key is needed.
    """

    def __init__(self, service: Service, key: str | None):
        self.service = service
        self.key = key

    async def Complete(self, request, context):
        """Answer a completion."""
        async with self._admitted(request, context):
            return await _reply(await self._complete(request, stream=False))

    async def CompleteStream(self, request, context):
        """Stream a completion."""
        async with self._admitted(request, context):
            async for chunk in _chunks(await self._complete(request, stream=True)):
                yield chunk

    async def Chat(self, request, context):
        """Answer a chat."""
        async with self._admitted(request, context):
            return await _reply(await self._chat(request, stream=False))

    async def ChatStream(self, request, context):
        """Stream a chat."""
        async with self._admitted(request, context):
            async for chunk in _chunks(await self._chat(request, stream=True)):
                yield chunk

    async def ListModels(self, request, context):
        """List the models."""
        async with self._admitted(request, context):
            return messages.ListModelsReply(names=list(self.service.models))

    @asynccontextmanager
    async def _admitted(self, request, context):
        """Turn refusals into the status of the call."""
        try:
            if self.key and not right_key(dict(context.invocation_metadata()).get("authorization", ""), self.key):
                raise Refusal(Reason.NO_KEY, "the metadata must have authorization: Bearer KEY")
            if request is None:
                raise Refusal(Reason.INVALID, "the bytes are no message of this method (generation.proto)")
            yield
        except Refusal as refusal:
            await context.abort(grpc.StatusCode[refusal.reason.grpc], refusal.message)

    async def _complete(self, request, stream: bool) -> Answer:
        prompts = list(_few("prompts", request.prompts))
        return await self.service.complete(request.model, prompts, self._options(request, stream))

    async def _chat(self, request, stream: bool) -> Answer:
        return await self.service.chat(request.model, _chat_of(request), self._options(request, stream))

    def _options(self, request, stream: bool) -> Options:
        options = request.options
        stop = tuple(_few("stop", options.stop))
        sampling = self.service.model(request.model).sampling
        given = {name: getattr(options, name) for name in OPTIONAL if options.HasField(name)}
        given |= {"top_k": options.top_k} if options.top_k else {}
        return Options(**sampling | given, n=options.n or 1, stop=stop, stream=stream)


OPTIONAL = ("max_tokens", "temperature", "top_p", "seed")  # of a message's options


def _few(name: str, items):
    """Return them. Raise Refusal for too many, before the first is taken out of its message."""
    _require_few(name, len(items), MOST_ITEMS)
    return items


def _require_few(name: str, found: int, most: int) -> None:
    if found > most:
        raise Refusal(Reason.INVALID, f"{name}: found {found:,}, expected at most {most:,}", name)


def _chat_of(request) -> Chat:
    """Return the chat of a request, by the checks of REST. Raise Refusal."""
    turns, tools = _few("messages", request.messages), _few("tools", request.tools)
    _require_few("tool_calls", sum(len(turn.tool_calls) for turn in turns), MOST_ITEMS)
    texts = [tool.parameters for tool in tools] + [call.arguments for turn in turns for call in turn.tool_calls]
    _require_few("brackets and colons", sum(text.count(mark) for text in texts for mark in "[{:"), MOST_MARKS)
    found = {"model": request.model, "messages": [*map(_turn, turns)], "tools": [*map(_tool, tools)]}
    if request.tool_choice:
        named = {"type": "function", "function": {"name": request.tool_choice}}
        found["tool_choice"] = request.tool_choice if request.tool_choice in ("auto", "none", "required") else named
    if request.HasField("parallel_tool_calls"):
        found["parallel_tool_calls"] = request.parallel_tool_calls
    try:
        return ChatRequest.model_validate(found).chat()
    except ValidationError as error:
        body = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        place, said = first_error(RequestValidationError(body))
        raise Refusal(Reason.INVALID, said, place) from None


def _turn(turn) -> dict:
    found = {"role": turn.role, "content": turn.content}
    if turn.tool_calls:
        found["content"] = turn.content or None
        functions = [{"name": call.name, "arguments": call.arguments} for call in turn.tool_calls]
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": function}
            for call, function in zip(turn.tool_calls, functions, strict=True)
        ]
    more = {name: getattr(turn, name) for name in ("tool_call_id", "reasoning_content")}
    return found | {name: text for name, text in more.items() if text}


def _tool(tool) -> dict:
    try:
        schema = parse_json(tool.parameters.encode(), "parameters") if tool.parameters else None
    except NotJson as error:
        raise Refusal(Reason.INVALID, f"tools: parameters of {shown(tool.name)}: {error}", "tools") from None
    found = {"name": tool.name, "description": tool.description or None, "parameters": schema}
    return {"type": "function", "function": {name: value for name, value in found.items() if value is not None}}


async def _reply(answer: Answer):
    readers, parts = _readers(answer), [[] for _ in answer.rows]
    finishes: list[Finish | None] = [None for _ in answer.rows]
    async for piece in answer.pieces():
        parts[piece.number] += read_piece(readers[piece.number], piece)
        finishes[piece.number] = piece.finish
    answers = [
        messages.Answer(finish=_finish(finish, reader), **_fields(found))
        for finish, reader, found in zip(finishes, readers, parts, strict=True)
    ]
    return messages.Reply(answers=answers, usage=_usage(answer))


async def _chunks(answer: Answer):
    readers, ended = _readers(answer), 0
    async for piece in answer.pieces():
        ended += piece.finish is not None
        fields = _fields(read_piece(readers[piece.number], piece))
        chunk = messages.Chunk(index=piece.number, finish=_finish(piece.finish, readers[piece.number]), **fields)
        if ended == len(answer.rows):
            chunk.usage.CopyFrom(_usage(answer))
        yield chunk


def _readers(answer: Answer) -> list[AnswerReader]:
    return [AnswerReader(answer.reading) for _ in answer.rows]


def _finish(finish: Finish | None, reader: AnswerReader) -> int:
    return messages.FINISH_TOOL_CALLS if finish is Finish.STOP and reader.calls else FINISHES[finish]


def _fields(parts: list[Said | ToolCall]) -> dict:
    """Return the fields that an answer and a chunk have for what is said, thought and called."""
    said, thought = (
        "".join(part.text for part in parts if isinstance(part, Said) and part.reasoning is one)
        for one in (False, True)
    )
    calls = [
        messages.ToolCall(id=call_id(), name=part.name, arguments=part.arguments)
        for part in parts
        if isinstance(part, ToolCall)
    ]
    return {"text": said, "reasoning_content": thought, "tool_calls": calls}


def _usage(answer: Answer):
    return messages.Usage(prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens)


NAME = messages.DESCRIPTOR.services_by_name["Generation"].full_name
MINUTE = 60_000  # in milliseconds, as the options have it
# A client that answers no pings is gone. A client that answers them but never finishes its message is ended by the age
# limit of connections: clients then connect again, and running calls have an hour to finish.
LIMITS = {
    "grpc.keepalive_time_ms": MINUTE,
    "grpc.keepalive_timeout_ms": MINUTE // 2,
    "grpc.max_connection_age_ms": 60 * MINUTE,
    "grpc.max_connection_age_grace_ms": 60 * MINUTE,
}
OPTIONS = {
    "grpc.max_receive_message_length": LARGEST_BODY,
    "grpc.so_reuseport": 0,
    "grpc.compression_enabled_algorithms_bitset": 1,  # none: a message is unpacked before its size and the key are seen
}


class UnreadableAsNone(grpc.aio.ServerInterceptor):
    """An interceptor that gives our methods None for bytes that are no message.

    gRPC itself would end the call with UNKNOWN.
    """

    async def intercept_service(self, continuation, handler_call_details):
        """Return the handler with a lenient deserializer."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(f"/{NAME}/"):
            return handler
        return handler._replace(request_deserializer=partial(_message_or_none, handler.request_deserializer))


def _message_or_none(read: Callable | None, content: bytes):
    assert read, "each of our methods has one"
    with suppress(DecodeError):
        return read(content)


class RpcServer:
    """Binds its port at once, answers from start() on. Raises RuntimeError where it gets no port.

    Attributes:
        key: See Servicer.
    """

    def __init__(self, service: Service, address: str, key: str | None):
        self.server = grpc.aio.server(interceptors=[UnreadableAsNone()], options=list((OPTIONS | LIMITS).items()))
        self.health = health.aio.HealthServicer()
        stubs.add_GenerationServicer_to_server(Servicer(service, key), self.server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        reflection.enable_server_reflection((NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), self.server)
        self.port = self.server.add_insecure_port(address)

    async def start(self) -> None:
        """Start to serve."""
        await self.health.set(NAME, health_pb2.HealthCheckResponse.SERVING)
        await self.server.start()

    async def stop(self, seconds: float) -> None:
        """Take no more calls; calls that are not answered after `seconds` are cancelled."""
        await self.health.enter_graceful_shutdown()
        await self.server.stop(seconds)
