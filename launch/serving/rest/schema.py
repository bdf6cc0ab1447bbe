"""Requests of the OpenAI API, as far as they are understood here.

A key that is not understood is an error, unless its value asks for nothing: a client that believes to have, say, a
penalty on repetition must not be answered without one. What asks for nothing depends on the key: `logprobs: 0` wants
the probabilities of the tokens themselves.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from launch.serving.request import Options

# Values of the API's keys that leave an answer as it is; null does so for every key.
ASKS_FOR_NOTHING = {
    "audio": ({},),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "parallel_tool_calls": (False, True),  # of tools, and there are none
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
}
# About the request, not about the answer.
IGNORED = set(
    ["user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"]
)
# What clients send back of the messages that they were given.
OF_MESSAGES = {"annotations": ([],), "audio": (), "function_call": (), "refusal": (), "tool_calls": ([],)}


def _require_nothing(extra: dict | None, neutral: dict[str, tuple]) -> None:
    """Raises ValueError for keys that ask for what there is not. A number is not a truth value: 0 is not false."""
    wanted = {
        key: value
        for key, value in (extra or {}).items()
        if value is not None and not any(value == one and type(value) in _alike(one) for one in neutral.get(key, ()))
    }
    if wanted:
        raise ValueError(f"not understood by this server: {', '.join(sorted(wanted))}")


def _alike(value: object) -> tuple[type, ...]:
    return (int, float) if type(value) in (int, float) else (type(value),)


def _as_list(stop: object) -> object:
    return [stop] if isinstance(stop, str) else stop or []


def _of_characters(text: str) -> str:
    """JSON can hold half a character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair (\\ud800 to \\udfff) is no character") from None
    return text


Text = Annotated[str, AfterValidator(_of_characters)]


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    include_usage: bool = False


class Request(BaseModel):
    """What completions and chats have in common."""

    model_config = ConfigDict(strict=True, extra="allow")
    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: Annotated[list[Text], BeforeValidator(_as_list)] = []
    n: int | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _understood(self):
        extra = {key: value for key, value in (self.model_extra or {}).items() if key not in IGNORED}
        if extra.get("best_of") is not None and extra["best_of"] == self.n:  # all that are made are given
            del extra["best_of"]
        _require_nothing(extra, ASKS_FOR_NOTHING)
        if self.stream_options and not self.stream:
            raise ValueError("stream_options: found without stream: true, whose events it is about")
        return self

    @property
    def with_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def options(self) -> Options:
        """Raises Refusal for values that cannot be. null: the default of the API."""
        names = ("max_tokens", "temperature", "top_p", "top_k", "seed", "n")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return Options(**given, stop=tuple(self.stop))


class CompletionRequest(Request):
    """prompt: a text, a list of them, the ids of one, or a list of these."""

    prompt: Text | list[Text] | list[int] | list[list[int]]
    max_tokens: int | None = 16  # as the API has it

    @field_validator("max_tokens")
    @classmethod
    def _default(cls, max_tokens: int | None) -> int:
        """null is the default, not as many as there is room for."""
        return 16 if max_tokens is None else max_tokens

    def prompts(self) -> list:
        single = isinstance(self.prompt, str) or (self.prompt and isinstance(self.prompt[0], int))
        return [self.prompt] if single else self.prompt


class TextPart(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    type: Literal["text"]
    text: Text


class Message(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart]

    @model_validator(mode="after")
    def _understood(self):
        _require_nothing(self.model_extra, OF_MESSAGES)
        return self

    def turn(self) -> dict:
        """As data_tools/formats/dialogues/dialogue.py has messages."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatRequest(Request):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None

    @model_validator(mode="after")
    def _one_name(self):
        """The API's newer name for max_tokens."""
        newer, older = self.max_completion_tokens, self.max_tokens
        if newer is not None and newer < 1:
            raise ValueError(f"max_completion_tokens: found {newer}, expected above 0")
        if newer is not None and older is not None and newer != older:
            raise ValueError(f"max_completion_tokens: found {newer}, and max_tokens: {older}. Give one")
        self.max_tokens = older if newer is None else newer
        return self
