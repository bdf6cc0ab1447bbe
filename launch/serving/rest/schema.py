"""Requests of the OpenAI API, as far as they are understood here.

A key that is not understood is an error, unless its value asks for nothing (null, false, 0, empty): a client that
believes to have, say, a penalty on repetition must not be answered without one.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from launch.serving.batching.request import Options

ASKS_FOR_NOTHING = (None, False, 0, "", [], {})
IGNORED = {"user", "metadata", "store", "service_tier"}  # about the request, not about the answer


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
        extra = (self.model_extra or {}).items()
        unknown = [key for key, value in extra if key not in IGNORED and value not in ASKS_FOR_NOTHING]
        if unknown:
            raise ValueError(f"not understood by this server: {', '.join(sorted(unknown))}")
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

    def prompts(self) -> list:
        single = isinstance(self.prompt, str) or (self.prompt and isinstance(self.prompt[0], int))
        return [self.prompt] if single else self.prompt


class TextPart(BaseModel):
    type: Literal["text"]
    text: Text


class Message(BaseModel):
    model_config = ConfigDict(strict=True)
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart]

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
        self.max_tokens = self.max_completion_tokens or self.max_tokens
        return self
