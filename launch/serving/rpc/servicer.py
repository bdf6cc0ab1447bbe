"""The methods of generation.proto."""

from contextlib import asynccontextmanager

import grpc

from launch.serving.answer import Answer
from launch.serving.batching.request import Finish, Options
from launch.serving.errors import Reason, Refusal
from launch.serving.rest.limits import right_key
from launch.serving.rpc import generation_pb2 as messages
from launch.serving.rpc import generation_pb2_grpc as stubs
from launch.serving.service import Service

FINISHES = {
    None: messages.FINISH_UNSPECIFIED,
    Finish.STOP: messages.FINISH_STOP,
    Finish.LENGTH: messages.FINISH_LENGTH,
}


class Servicer(stubs.GenerationServicer):
    """Each method as generation.proto describes it. key: what clients must send; None: none is asked for."""

    def __init__(self, service: Service, key: str | None):
        self.service = service
        self.key = key

    async def Complete(self, request, context):
        async with self._admitted(context):
            return await _reply(await self._complete(request))

    async def CompleteStream(self, request, context):
        async with self._admitted(context):
            async for chunk in _chunks(await self._complete(request)):
                yield chunk

    async def Chat(self, request, context):
        async with self._admitted(context):
            return await _reply(await self._chat(request))

    async def ChatStream(self, request, context):
        async with self._admitted(context):
            async for chunk in _chunks(await self._chat(request)):
                yield chunk

    async def ListModels(self, request, context):
        async with self._admitted(context):
            return messages.ListModelsReply(names=list(self.service.models))

    @asynccontextmanager
    async def _admitted(self, context):
        """Refusals become the status of the call."""
        try:
            if self.key and not right_key(dict(context.invocation_metadata()).get("authorization", ""), self.key):
                raise Refusal(Reason.NO_KEY, "the metadata must have authorization: Bearer KEY")
            yield
        except Refusal as refusal:
            await context.abort(grpc.StatusCode[refusal.reason.grpc], refusal.message)

    async def _complete(self, request) -> Answer:
        return await self.service.complete(request.model, list(request.prompts), _options(request.options))

    async def _chat(self, request) -> Answer:
        turns = [{"role": message.role, "content": message.content} for message in request.messages]
        return await self.service.chat(request.model, turns, _options(request.options))


def _options(options) -> Options:
    optional = ("max_tokens", "temperature", "top_p", "seed")
    given = {name: getattr(options, name) for name in optional if options.HasField(name)}
    return Options(**given, top_k=options.top_k, n=options.n or 1, stop=tuple(options.stop))


async def _reply(answer: Answer):
    answers = [messages.Answer() for _ in answer.rows]
    async for piece in answer.pieces():
        answers[piece.number].text += piece.text
        answers[piece.number].finish = FINISHES[piece.finish]
    return messages.Reply(answers=answers, usage=_usage(answer))


async def _chunks(answer: Answer):
    ended = 0
    async for piece in answer.pieces():
        ended += piece.finish is not None
        chunk = messages.Chunk(index=piece.number, text=piece.text, finish=FINISHES[piece.finish])
        if ended == len(answer.rows):
            chunk.usage.CopyFrom(_usage(answer))
        yield chunk


def _usage(answer: Answer):
    return messages.Usage(prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens)
