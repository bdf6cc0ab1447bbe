"""The REST server: /v1/completions, /v1/chat/completions, /tokenize, /v1/models, /health, /metrics, and a page to try.

Answers have the form of the OpenAI API: whole, or as server-sent events.
"""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.staticfiles import StaticFiles

from data_tools.dialogues.messages import ToolCall
from launch.generation.answer_parts import AnswerReader, Said, read_whole
from launch.serving.answer import Answer, AnswerPiece, call_id, joined, read_piece
from launch.serving.request import Finish, Reason, Refusal
from launch.serving.rest_logprobs import by_ids, of_chat, of_completion
from launch.serving.rest_requests import (
    LARGEST_BODY,
    LOOPBACK,
    MOST_MARKS,
    BodyLimit,
    ChatRequest,
    CompletionRequest,
    first_error,
    require_key,
    unless_gone,
)
from launch.serving.service import Service


class Reply:
    """One reply.

    Attributes:
        kind: "chat.completion" or "text_completion".
    """

    def __init__(self, kind: str, model: str, answer: Answer):
        self.kind = kind
        self.answer = answer
        prefix = "chatcmpl" if self.is_chat else "cmpl"
        self.head = {"id": f"{prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self.readers = [AnswerReader(answer.reading) for _ in answer.rows]

    @property
    def is_chat(self) -> bool:
        """Whether the reply is a chat's."""
        return self.kind == "chat.completion"

    async def whole(self) -> dict:
        """Return the whole reply.

        Raises:
            Refusal: If the answer fails.
        """
        pieces: list[list[AnswerPiece]] = [[] for _ in self.answer.rows]
        async for piece in self.answer.pieces():
            pieces[piece.number].append(piece)
        choices = await asyncio.to_thread(lambda: [self._whole_choice(joined(parts)) for parts in pieces])
        return {**self.head, "object": self.kind, "choices": choices, "usage": self._usage()}

    async def events(self, with_usage: bool) -> AsyncIterator[str]:
        """Yield the events of a stream.

        Args:
            with_usage: One more event, with token counts alone.
        """
        kind = "chat.completion.chunk" if self.is_chat else self.kind
        head = {**self.head, "object": kind}
        try:
            for number in range(len(self.answer.rows)) if self.is_chat else ():
                role = {"index": number, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
                yield _event({**head, "choices": [role]})
            async for piece in self.answer.pieces():
                choices = await asyncio.to_thread(self._choices, piece) if piece.prompt else self._choices(piece)
                for choice in choices:
                    yield _event({**head, "choices": [choice]})
            if with_usage:
                yield _event({**head, "choices": [], "usage": self._usage()})
        except Refusal as refusal:  # too late for a status
            yield _event(refusal.body())
        yield "data: [DONE]\n\n"

    def _whole_choice(self, piece: AnswerPiece) -> dict:
        """Return all of an answer as one choice."""
        if not self.is_chat:
            return self._choice(piece, {"text": piece.text})
        said, reasoning, calls = read_whole(self.answer.reading, piece.text)
        message = {"role": "assistant", "content": said or (None if calls else "")}
        message |= {"reasoning_content": reasoning} if reasoning else {}
        message |= {"tool_calls": [*map(_call, calls)]} if calls else {}
        choice = self._choice(piece, {"message": message})
        return choice | ({"finish_reason": "tool_calls"} if calls and piece.finish is Finish.STOP else {})

    def _choices(self, piece: AnswerPiece) -> list[dict]:
        """Return a part of an answer's stream: log-probabilities are in the first choice, the end in the last one."""
        if not self.is_chat:
            return [self._choice(piece, {"text": piece.text})]
        deltas, parts = [], read_piece(self.readers[piece.number], piece)
        index = self.readers[piece.number].calls - sum(isinstance(part, ToolCall) for part in parts)
        for part in parts:
            if isinstance(part, Said):
                deltas.append({"reasoning_content" if part.reasoning else "content": part.text})
                continue
            call = {"index": index, **_call(part)}
            named = {"name": part.name, "arguments": ""}
            rest = {"index": index, "function": {"arguments": part.arguments}}
            deltas += [{"tool_calls": [call | {"function": named}]}, {"tool_calls": [rest]}]
            index += 1
        if not (deltas or piece.finish or piece.likelihoods or piece.prompt):
            return []
        first, *others = deltas or [{}]
        choices = [self._choice(replace(piece, text="", finish=None), {"delta": first})]
        choices += [self._choice(AnswerPiece(piece.number, ""), {"delta": delta}) for delta in others]
        choices[-1]["finish_reason"] = self._finish(piece)
        return choices

    def _finish(self, piece: AnswerPiece) -> str | None:
        called = piece.finish is Finish.STOP and self.readers[piece.number].calls
        return "tool_calls" if called else piece.finish

    def _choice(self, piece: AnswerPiece, content: dict) -> dict:
        """Return a choice of a stream. Many new names of tokens take their time: not in the event loop."""
        choice = {"index": piece.number, **content, "logprobs": self._logprobs(piece)}
        choice["finish_reason"] = self._finish(piece)
        if self.answer.options.prompt_logprobs is not None and piece.prompt:
            names, most = self.answer.token_name, self.answer.options.prompt_logprobs
            choice["prompt_logprobs"] = by_ids(piece.prompt, most, names)
        return choice

    def _logprobs(self, piece: AnswerPiece) -> dict | None:
        options, names = self.answer.options, self.answer.token_name
        if options.logprobs is None:
            return None
        if self.is_chat:
            return of_chat(piece.likelihoods, options.logprobs, names)
        return of_completion((*(piece.prompt if options.echo else ()), *piece.likelihoods), options.logprobs, names)

    def _usage(self) -> dict:
        prompt, completion = self.answer.prompt_tokens, self.answer.completion_tokens
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _call(call: ToolCall) -> dict:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call_id(), "type": "function", "function": function}


def _event(data: dict) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


PAGE = Path(__file__).parent / "page"
PAGE_HEADERS = {
    # Nothing from elsewhere is loaded, and no other site shows the page in a frame.
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class PageFiles(StaticFiles):
    """The files of a page, with the headers that bind it to its own."""

    def file_response(self, *args, **named) -> Response:
        """Return the response with the headers."""
        reply = super().file_response(*args, **named)
        reply.headers.update(PAGE_HEADERS)
        return reply


def make_app(service: Service, key: str | None = None, local: bool = True) -> FastAPI:
    """Return the REST application.

    Args:
        key: The API key that clients must send; None: no key is needed.
        service: The models.
        local: Only requests for this machine's own names are answered, so that no web page reaches the server by a
            name of its own that leads here (DNS rebinding).
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(BodyLimit, largest=LARGEST_BODY, marks=MOST_MARKS)
    if local:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=LOOPBACK)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _fault)
    keyed = [Depends(require_key(key))]

    @app.post("/v1/completions", dependencies=keyed)
    async def completions(body: CompletionRequest, request: Request):
        answer = await service.complete(body.model, body.prompts(), body.options(service.model(body.model).sampling))
        return await _reply("text_completion", body, answer, request)

    @app.post("/v1/chat/completions", dependencies=keyed)
    async def chat(body: ChatRequest, request: Request):
        answer = await service.chat(body.model, body.chat(), body.options(service.model(body.model).sampling))
        return await _reply("chat.completion", body, answer, request)

    @app.post("/tokenize", dependencies=keyed)
    async def tokenize(body: ChatRequest):
        tokens = await service.tokens(body.model, body.chat())
        return {"count": len(tokens), "tokens": tokens}

    @app.get("/v1/models", dependencies=keyed)
    async def models():
        return {"object": "list", "data": [_model(name, service) for name in service.models]}

    @app.get("/v1/models/{name:path}", dependencies=keyed)
    async def model(name: str):
        return _model(service.model(name).name, service)

    @app.get("/metrics", dependencies=keyed)
    async def metrics():
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/health")
    async def health():
        service.require_running()
        return {"status": "ok"}

    @app.get("/")
    async def page():
        return FileResponse(PAGE / "index.html", headers=PAGE_HEADERS)

    app.mount("/page", PageFiles(directory=PAGE))

    return app


async def _reply(kind: str, body: CompletionRequest | ChatRequest, answer: Answer, request: Request) -> Response:
    reply = Reply(kind, body.model, answer)
    if body.stream:
        return _EventStream(reply.events(body.with_usage), answer.cancel)
    whole = await unless_gone(request, reply.whole())
    return Response(status_code=499) if whole is None else JSONResponse(whole)


class _EventStream(StreamingResponse):
    """Server-sent events. cancel: called at the end, also where a client went away before the first."""

    def __init__(self, events, cancel: Callable[[], None]):
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self.cancel = cancel

    async def __call__(self, scope, receive, send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.cancel()


def _model(name: str, service: Service) -> dict:
    model, about = service.model(name), {"created": service.started, "owned_by": "paddle-llm-recipes"}
    return {"id": name, "object": "model", **about, "chats": model.chats, "system": model.system}


async def _refused(request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)
    headers = {"Retry-After": "1"} if refusal.reason is Reason.BUSY else None
    return JSONResponse(refusal.body(), refusal.reason.http, headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    place, found = first_error(error)
    return await _refused(request, Refusal(Reason.INVALID, found, place or None))


async def _http_error(request: Request, error: Exception) -> Response:
    """Return the framework's errors: no such path, wrong method, a body that is too large."""
    assert isinstance(error, HTTPException)
    body = {"error": {"message": str(error.detail), "type": "invalid_request_error", "param": None, "code": None}}
    return JSONResponse(body, error.status_code, error.headers)


async def _fault(request: Request, error: Exception) -> Response:
    """Return an internal error: the traceback goes to the server's terminal, not to the client."""
    return await _refused(request, Refusal(Reason.FAILED, "a fault of the server; its terminal says more"))
