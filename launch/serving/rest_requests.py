"""What a REST request must be: its size, its key, its time and host, and its fields, those of the OpenAI API.

A key that is not understood is an error, unless its value requests nothing: a client that believes to have, say, a
penalty must not be answered without one.
"""

import asyncio
import hmac
import json
import math
import resource
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar, cast

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WrapValidator,
    field_validator,
    model_validator,
)
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from data_tools.cli import DIGITS
from data_tools.dialogues.messages import MESSAGE_KEYS
from data_tools.formats.json_files import quoted, shown
from launch.serving.chats import Chat, read_chat
from launch.serving.request import MOST_ITEMS, MOST_LIKELY, Options, Reason, Refusal

T = TypeVar("T")
LARGEST_BODY = 4 * 2**20  # bytes
MOST_MARKS = 2**17  # brackets and colons of a body: they bound the time for which reading it stops the event loop
MOST_KEYS = 1024  # of an object
LOOPBACK = ["127.0.0.1", "localhost", "::1", "[::1]"]
HEAD_SECONDS = 20.0  # from a connection, or the end of its last answer, to the end of a request's header
BODY_SECONDS = 60.0  # from there to the end of its body
LINGER_SECONDS = 5.0
CLOSE = {"Connection": "close"}


class TimedHead(H11Protocol):
    """uvicorn's HTTP with a limit for headers.

    Its own limit is for connections on which nothing comes at all (timeout_keep_alive); for a header that never ends it
    waits as long as its client likes. And of more connections than half of the files that this process may open, the
    one that has waited longest for a header is closed: requests find room.
    """

    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport) -> None:
        """Watch a new connection, and close the oldest waiting one of too many."""
        super().connection_made(transport)
        self._watch()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # -1: as many as it likes
        if len(self.connections) > files // 2 >= 0:
            waiting = {one.timer.when(): one for one in self.connections if isinstance(one, TimedHead) and one.timer}
            oldest = waiting[min(waiting)]
            oldest._end_watch()
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass data on and watch again."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, error) -> None:
        """Stop to watch."""
        super().connection_lost(error)
        self._end_watch()

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_watch()
        elif self.timer is None and not self.transport.is_closing():
            self.timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _end_watch(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class BodyLimit:
    """Middleware that refuses large and slow bodies.

    A body of more than `largest` bytes is refused when its header says so or when this many have come, one of more
    brackets and colons than `marks` when this many have come, and one that has not come to its end after BODY_SECONDS.
    Each answer before the end of its body is complete at once, but its connection is read for LINGER_SECONDS more:
    a client that still sends when the connection is closed would not see the answer.
    """

    def __init__(self, app, largest: float, marks: float = math.inf, unbounded: str = ""):
        """Set the limits; `unbounded` is a path whose handler bounds its own body."""
        self.app = app
        self.largest = largest
        self.marks = marks
        self.unbounded = unbounded

    async def __call__(self, scope, receive, send) -> None:
        """Handle a request with the limit."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        bounded = scope["path"] != self.unbounded
        headers = Headers(scope=scope)
        stated = int(headers.get("content-length", 0))
        seen, marks, coming = 0, 0, bool(stated) or "transfer-encoding" in headers
        deadline = time.monotonic() + BODY_SECONDS

        async def counted():
            nonlocal seen, marks, coming
            if bounded and stated > self.largest:
                raise self._too_large(self.largest, "bytes")
            try:
                message = await asyncio.wait_for(receive(), deadline - time.monotonic() if coming and bounded else None)
            except asyncio.TimeoutError:
                found = f"the body has not come to its end within {BODY_SECONDS:g} s"
                raise HTTPException(Reason.SLOW.http, found, CLOSE) from None
            coming = message.get("more_body", False)
            body = message.get("body", b"")
            seen, marks = seen + len(body), marks + sum(map(body.count, (b"[", b"{", b":")))
            if bounded and seen > self.largest:
                raise self._too_large(self.largest, "bytes")
            if marks > self.marks:
                raise self._too_large(self.marks, "brackets and colons")
            return message

        async def read_on() -> None:
            while (await receive()).get("more_body"):
                pass

        async def answered(message) -> None:
            if coming and message["type"] == "http.response.body" and not message.get("more_body"):
                await send({**message, "more_body": True})
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(read_on(), LINGER_SECONDS)
                message = {"type": "http.response.body"}
            await send(message)

        await self.app(scope, counted, answered)

    @staticmethod
    def _too_large(most: float, what: str) -> HTTPException:
        return HTTPException(Reason.TOO_LARGE.http, f"the body has more than {most} {what}", CLOSE)


async def unless_gone(request: Request, wanted: Coroutine[Any, Any, T]) -> T | None:
    """Return the awaited result; None where the client closes the connection before: then the work is cancelled."""
    found, gone = asyncio.ensure_future(wanted), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({found, gone}, return_when=asyncio.FIRST_COMPLETED)
        return await found if found.done() else None
    finally:
        found.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    """Wait until the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def require_key(key: str | None):
    """Return a dependency of paths that need the key."""

    def check(request: Request) -> None:
        if key and not right_key(request.headers.get("authorization", ""), key):
            raise Refusal(Reason.NO_KEY, "the header must be there: Authorization: Bearer KEY")

    return check


def right_key(authorization: str, key: str) -> bool:
    """Return whether the header has the key."""
    return hmac.compare_digest(authorization.encode(), f"Bearer {key}".encode())


# Values of keys of the OpenAI API and of vLLM that leave an answer as it is; null does so for every key.
NEUTRAL_VALUES = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (False, True),  # as the tokenizer and the chat template have them
    "audio": ({},),
    "bad_words": ([],),
    "best_of": (1,),
    "continue_final_message": (False,),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "min_p": (0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "priority": (0,),
    "repetition_penalty": (1,),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (False, True),
    "stop_token_ids": ([],),
    "suffix": ("",),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
}
# Keys about the request, not about the answer.
IGNORED = set(
    ["user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"]
)
# Keys of received messages that clients send back.
NEUTRAL_IN_MESSAGES = {"annotations": ([],), "audio": (), "function_call": (), "refusal": ()}


def _require_nothing(extra: dict | None, neutral: dict[str, tuple]) -> None:
    """Raise ValueError for keys of features that the server does not have."""
    requested = []
    for key, value in (extra or {}).items():
        # A number is no truth value: 0 is not False.
        same = (isinstance(value, bool) == isinstance(known, bool) and value == known for known in neutral.get(key, ()))
        if value is not None and not any(same):
            requested.append(key)
    if requested:
        raise ValueError(f"not understood by this server: {shown(', '.join(sorted(requested)), 150)}")


def _as_list(stop: object) -> object:
    return [stop] if isinstance(stop, str) else [] if stop is None else stop


def _whole_characters(text: str) -> str:
    """Raise ValueError for half a surrogate pair, which JSON can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair (\\ud800 to \\udfff) is no character") from None
    return text


def _plain_id(key: str) -> int:
    """Raise ValueError for what only some readers take for a number: 6_5, 065, one with a space."""
    if not (key.isascii() and key.isdecimal() and str(int(key[:DIGITS])) == key):
        raise ValueError("expected an id in plain decimal digits, such as 65")
    return int(key)


def _few_keys(found: Any) -> Any:
    """Raise ValueError for an object of many keys, of which each could become an error of its own."""
    if isinstance(found, dict) and len(found) > MOST_KEYS:
        raise ValueError(f"found {len(found):,} keys, expected at most {MOST_KEYS:,}")
    return found


Text = Annotated[str, AfterValidator(_whole_characters)]
FewKeys = BeforeValidator(_few_keys)
Items = Field(fail_fast=True, max_length=MOST_ITEMS)  # the first wrong item is the only error
Ids = Annotated[list[int], Field(fail_fast=True, max_length=2**20)]


class Fields(BaseModel):
    """Fields of a request."""

    @model_validator(mode="before")
    @classmethod
    def _few(cls, found: Any) -> Any:
        return _few_keys(found)


# By the beginning of the name that pydantic has for a kind of error; its limits are put into the braces.
EXPECTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "a text",
    "string_too_long": "at most {max_length} characters",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
    "literal": "{expected}",
    "greater": "at least {ge}",
    "less": "at most {le}",
    "too_long": "at most {max_length}",
    "too_short": "at least {min_length}",
}


def first_error(error: RequestValidationError) -> tuple[str, str]:
    """Return the place of a wrong field, and a message in which no text of the client is long."""
    errors = error.errors()
    for one in errors:
        one["place"] = [part for part in one["loc"][1:] if "[" not in str(part)]  # pydantic's own: list[int]
        one["kind"] = one["type"] if one["type"] in EXPECTED else one["type"].split("_")[0]
    # In a union: the kind that was meant, which has come furthest.
    numbers = [[part for part in one["place"] if isinstance(part, int)] for one in errors]
    far = [(one["type"] == "too_long", len(one["place"]), at) for one, at in zip(errors, numbers, strict=True)]
    worst = errors[far.index(max(far))]
    named, found, limits = worst["place"], worst["input"], worst.get("ctx", {})
    if worst["type"] == "missing":
        said = "missing, and required"
    elif worst["type"] == "extra_forbidden":
        key = worst["loc"][-1]
        named = named[:-1] if key in named else named
        said = f"not understood by this server: {shown(key)}"
    elif worst["type"] == "json_invalid":
        named, said = [], f"the body is no JSON: {limits['error']} at character {named[0]}"
    elif worst["kind"] in EXPECTED:
        alike = [one for one in errors if one["place"] == named and one["kind"] in EXPECTED]
        allowed = dict.fromkeys(EXPECTED[one["kind"]].format(**one.get("ctx", {})) for one in alike)
        kinds = {dict: "an object", list: "a list", bool: str(found).lower(), type(None): "null"}
        value = limits.get("actual_length", kinds.get(type(found), quoted(found)))
        said = f"found {value}, expected {' or '.join(allowed)}"
    else:
        said = str(limits.get("error", worst["msg"]))
    place = ".".join(shown(part) for part in named)
    return place, f"{place}: {said}" if place else said


class StreamOptions(Fields):
    """Options of a stream.

    Attributes:
        include_obfuscation: Of the stream's size, which changes no text.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    include_usage: bool | None = False
    include_obfuscation: bool | None = None
    continuous_usage_stats: Literal[False] | None = None


class JsonSchema(Fields):
    """A JSON schema of an answer."""

    model_config = ConfigDict(strict=True, extra="forbid")
    name: str
    description: str | None = None
    json_schema: dict = Field(alias="schema")
    strict: bool | None = None  # an answer always meets its schema


class ResponseFormat(Fields):
    """The form of an answer."""

    model_config = ConfigDict(strict=True, extra="forbid")
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _whole(self):
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema: expected with type json_schema, and only there")
        return self

    def schema_text(self) -> str | None:
        """Return the JSON schema as text; None for answers in text."""
        if self.type == "text":
            return None
        return json.dumps(self.json_schema.json_schema if self.json_schema else {"type": "object"})


class GenerationRequest(Fields):
    """The common fields of completions and chats."""

    model_config = ConfigDict(strict=True, extra="allow")
    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: Annotated[dict[Annotated[int, BeforeValidator(_plain_id)], float] | None, FewKeys] = None
    seed: int | None = None
    stop: Annotated[list[Text], Items, BeforeValidator(_as_list)] = []
    response_format: ResponseFormat | None = None
    n: int | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _understood(self):
        extra = {key: value for key, value in (self.model_extra or {}).items() if key not in IGNORED}
        if extra.get("best_of") is not None and extra["best_of"] == self.n:  # all that are made are given
            del extra["best_of"]
        _require_nothing(extra, NEUTRAL_VALUES)
        return self

    @property
    def with_usage(self) -> bool:
        """Whether the stream ends with token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def options(self, sampling: dict, **more) -> Options:
        """Return the options. null: the default of the model (read_sampling), else of the API.

        Args:
            more: Fields of completions or chats alone.
            sampling: The model's defaults.

        Raises:
            Refusal: For impossible values.
        """
        penalties = ("frequency_penalty", "presence_penalty")
        names = ("max_tokens", "temperature", "top_p", "top_k", *penalties, "seed", "n")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.response_format:
            given["json_schema"] = self.response_format.schema_text()
        given |= {"logit_bias": tuple((self.logit_bias or {}).items()), "stop": tuple(self.stop)}
        return Options(**sampling | given, stream=bool(self.stream), **more)


# From left to right: a form that is not meant fails at its first item.
Prompt = Annotated[
    Text | Annotated[list[Text], Items] | Ids | Annotated[list[Ids], Items], Field(union_mode="left_to_right")
]


class CompletionRequest(GenerationRequest):
    """A request of a completion.

    Attributes:
        prompt: A text, a list of texts, the ids of one, or a list of these.
        prompt_logprobs: As in vLLM.
    """

    prompt: Prompt
    max_tokens: int | None = 16  # as the API has it
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    echo: bool | None = False

    @field_validator("max_tokens")
    @classmethod
    def _default(cls, max_tokens: int | None) -> int:
        """Return the API's default for null, not the largest length."""
        return 16 if max_tokens is None else max_tokens

    def options(self, sampling: dict, **more) -> Options:
        """Return the options, with likelihoods of the prompt."""
        likelihoods = {"logprobs": self.logprobs, "prompt_logprobs": self.prompt_logprobs}
        return super().options(sampling, **likelihoods, echo=bool(self.echo), **more)

    def prompts(self) -> list:
        """Return the prompts as a list."""
        if isinstance(self.prompt, str) or (self.prompt and isinstance(self.prompt[0], int)):
            return [self.prompt]
        return self.prompt


class TextPart(Fields):
    """A text as a part of a message."""

    model_config = ConfigDict(strict=True, extra="forbid")
    type: Literal["text"]
    text: Text


class RequestMessage(Fields):
    """The form of a message; data_tools/dialogues/messages.py reads it."""

    model_config = ConfigDict(strict=True, extra="allow")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[TextPart], Items] | None = None
    tool_calls: Annotated[list[Annotated[dict[Text, Any], FewKeys]], Items] | None = None

    @model_validator(mode="after")
    def _understood(self):
        extra = {key: value for key, value in (self.model_extra or {}).items() if key not in MESSAGE_KEYS}
        _require_nothing(extra, NEUTRAL_IN_MESSAGES)
        return self


class Known(Fields):
    """A field without unknown keys."""

    model_config = ConfigDict(strict=True, extra="allow")

    @model_validator(mode="after")
    def _understood(self):
        _require_nothing(self.model_extra, {})
        return self


class Function(Known):
    """A function that a tool offers."""

    name: Text
    description: Text | None = None
    parameters: Annotated[dict[Text, Any] | None, FewKeys] = None
    strict: bool | None = None


class Tool(Known):
    """A tool."""

    type: Literal["function"]
    function: Function


# What clients sent, whose order of keys chat templates show.
Checked = WrapValidator(lambda found, check: check(found) and found)


class ChatRequest(GenerationRequest):
    """A request of a chat."""

    messages: Annotated[list[Annotated[RequestMessage, Checked]], Items, Field(min_length=1)]
    tools: Annotated[list[Annotated[Tool, Checked]], Items] | None = None
    tool_choice: Literal["none", "auto", "required"] | Tool | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: Annotated[dict[Text, Any] | None, FewKeys] = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_LIKELY)] | None = None

    def options(self, sampling: dict, **more) -> Options:
        """Return the options, with likelihoods of the answer."""
        return super().options(sampling, logprobs=(self.top_logprobs or 0) if self.logprobs else None, **more)

    def chat(self) -> Chat:
        """Return the chat.

        Raises:
            Refusal: If the messages are no dialogue, or the tools no tools.
        """
        choice = self.tool_choice.function.name if isinstance(self.tool_choice, Tool) else None
        forced = choice is not None or self.tool_choice == "required"
        tools = None if self.tool_choice == "none" else self.tools
        several, messages = self.parallel_tool_calls is not False, cast(list[dict], self.messages)
        return read_chat(messages, cast("list[dict] | None", tools), choice, forced, several, self.chat_template_kwargs)

    @model_validator(mode="after")
    def _top_of_something(self):
        if self.top_logprobs and not self.logprobs:
            raise ValueError(f"top_logprobs: found {self.top_logprobs} without logprobs: true")
        return self

    @model_validator(mode="after")
    def _one_name(self):
        """Accept the API's newer name for max_tokens."""
        newer, older = self.max_completion_tokens, self.max_tokens
        if newer is not None and newer < 1:
            raise ValueError(f"max_completion_tokens: found {newer}, expected above 0")
        if newer is not None and older is not None and newer != older:
            raise ValueError(f"max_completion_tokens: found {newer}, and max_tokens: {older}. Give one")
        self.max_tokens = older if newer is None else newer
        return self
