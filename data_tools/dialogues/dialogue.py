"""What supervised fine-tuning learns from: questions with their answers, and the JSON rows that hold them.

    {"src": "...", "tgt": "..."}                                    pairs; lists of both are a dialogue
    {"content": "...", "summary": "..."}                            AdvertiseGen
    {"instruction": "...", "input": "...", "output": "..."}         Alpaca; input may be empty or left out; before it
                                                                    "history": [["question", "answer"], ...]
    {"conversations": [{"from": "human", "value": "..."}, ...]}     ShareGPT: human and gpt in turn, system first
    {"messages": [{"role": "user", "content": "..."}, ...]}         OpenAI's, with calls of tools and their results
    {"query": "...", "answers": "[...]", "tools": "[...]"}          xLAM's

Each may have "system", a text that sets the scene; pairs may have it within "context", where PaddleNLP's templates
read it. Every other key is ignored and reported (Schema.unused).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from data_tools.dialogues.messages import (
    MESSAGE_KEYS,
    REASONING,
    WEIGHTS,
    Dialogue,
    RowError,
    parsed,
    plain_dialogue,
    read_dialogue,
    text_of,
    value_at,
    with_loss_mask,
)
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import quoted, shown

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Schema(Generic[Entry]):
    """One way to write an entry, such as a dialogue.

    Attributes:
        keys: Keys that a row must have.
        chat: Whether a chat template is its usual form.
        read: Makes an entry of a row with these keys; raises RowError for impossible values.
        further: Keys that a row may have.
        parts: Keys of the messages at its first key.
        ask: Makes an entry of a row that may lack the last answer.
    """

    name: str
    keys: tuple[str, ...]
    chat: bool
    read: Callable[[dict], Entry]
    further: tuple[str, ...] = ("system",)
    parts: tuple[str, ...] = ()
    ask: Callable[[dict], Entry] | None = None

    def fits(self, row: dict) -> bool:
        """Return whether a row has all required keys."""
        return set(self.keys) <= set(row)

    def unused(self, row: dict) -> list[str]:
        """Return the keys of a row that are not used; keys of its messages stand behind a colon."""
        names = [shown(key) for key in row if key not in self.keys and key not in self.further]
        for message in listed(row, self.keys[0]) if self.parts else ():
            names += [f"{self.keys[0]}: {shown(key)}" for key in message if key not in self.parts]
        if "context" in self.further and "context" in row:
            context = row["context"]
            within = [key for key in context if key != "system"] if isinstance(context, dict) else None
            names += ["context"] if within is None else [f"context: {shown(key)}" for key in within]
        return names


def pairs(prompt: str, response: str) -> Schema[Dialogue]:
    """Return the schema of questions at one key and answers at another."""

    def read(row: dict, asks: bool = False) -> Dialogue:
        questions = texts_at(row, prompt)
        answers = row.get(response) if asks else value_at(row, response)
        answers = texts_at(row, response) if isinstance(answers, list) or not asks else []
        if asks:
            answers = answers[: len(questions) - 1]
        if len(answers) != len(questions) - asks:
            raise RowError(
                f"{len(questions)} texts at {prompt!r}, but {len(answers)} at {response!r} before the last question"
                if asks
                else f"{len(questions)} texts at {prompt!r}, but {len(answers)} at {response!r}"
            )
        asked = questions.pop() if asks and questions else None
        context = row.get("context")
        system = optional_text(context if isinstance(context, dict) else row, "system") or optional_text(row, "system")
        label = row.get("label") if isinstance(row.get("label"), list) and not asks else None
        if row.get("is_system") == 1 and questions:  # ERNIEKit's: the first question is the system text
            system, questions, answers = questions[0], questions[1:], answers[1:]
            label = label and label[1:]
        return trained_on_some(
            with_loss_mask(plain_dialogue(zip(questions, answers, strict=True), system, asked), {"label": label})
        )

    further = ("system", "context", "label", "is_system")
    return Schema(f"{prompt}/{response}", (prompt, response), False, read, further, ask=partial(read, asks=True))


def find_schema(
    rows: Iterable[dict], prompt_column: str | None = None, response_column: str | None = None
) -> Schema[Dialogue]:
    """Return the schema that fits most of these rows, at least half of them; with both columns named, pairs of these.

    Raises:
        DataError: With the keys found and the known schemas.
    """
    if prompt_column and prompt_column == response_column:
        raise DataError(f"--prompt_column and --response_column: found {prompt_column} for both, expected two keys.")
    if prompt_column and response_column:
        return pairs(prompt_column, response_column)
    if prompt_column or response_column:
        raise DataError("--prompt_column and --response_column: give both or neither.")
    return best_schema(list(rows), SCHEMAS, "--prompt_column KEY --response_column KEY")


def best_schema(rows: list[dict], schemas: Sequence[Schema[Entry]], flags: str) -> Schema[Entry]:
    """Return the first of the schemas that fit most rows, at least half of them. flags: flags that name other keys.

    Raises:
        DataError: If none fits.
    """
    fitting = [sum(schema.fits(row) for row in rows) for schema in schemas]
    if rows and 2 * max(fitting) >= len(rows):
        return schemas[fitting.index(max(fitting))]
    found = ", ".join(sorted({shown(key) for row in rows for key in row})) or "none"
    known = "; ".join(dict.fromkeys(", ".join(schema.keys) for schema in schemas))
    raise DataError(f"the keys of the first rows are {found}; known are {known}. Name the right ones: {flags}.")


def alpaca_dialogue(row: dict, output: str | None) -> Dialogue:
    """Return the dialogue of a row in Alpaca's form. output: the key of the answer; None: the question has none yet."""
    instruction = one_text(row, "instruction")
    context = optional_text(row, "input")
    question = f"{instruction}\n\n{context}" if context else instruction
    system, history = optional_text(row, "system"), _history(row)
    if output is None:
        return plain_dialogue(history, system, question)
    return plain_dialogue([*history, (question, one_text(row, output))], system)


def _history(row: dict) -> list[tuple[str, str]]:
    """Return the earlier turns of a row."""
    history = [] if row.get("history") is None else row["history"]
    if not isinstance(history, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in history):
        raise RowError(f"'history' is not a list of [question, answer]: {quoted(history)}")
    pairs = [texts_at({"history": pair}, "history") for pair in history]
    return [(question, answered) for question, answered in pairs]


def refuse_media(row: dict) -> None:
    """Raise RowError for a row with images, videos or sound."""
    for key in MEDIA:
        if row.get(key):
            raise RowError(
                f"{key!r} is {shown(row[key])}: models here read text alone. Leave such rows out, or give the text of "
                "what they show"
            )


def optional_text(row: dict, key: str) -> str:
    """Return the text at a key that may be missing, null or empty."""
    if row.get(key) in (None, ""):
        return ""
    return one_text(row, key)


def spoken_dialogue(row: dict, messages: list[dict], asks: bool = False) -> Dialogue:
    """Return the dialogue of messages in OpenAI's form, with the row's system text, tools, switches and loss mask.

    asks: the dialogue ends with a question, without an answer behind it.

    Raises:
        RowError: If the row is inconsistent.
    """
    messages = with_calls(messages, bool(row.get("tools")))
    system = optional_text(row, "system")
    if system:
        first = messages[0] if messages else {}
        if first.get("role") != "system":
            messages = [{"role": "system", "content": system}, *messages]
        elif first.get("content") != system:
            raise RowError("'system' and the first message give two system texts, expected one")
    switches = row.get("chat_template_kwargs")
    if row.get("enable_thinking") is not None:
        switches = (switches if isinstance(switches, dict) else {}) | {"enable_thinking": row["enable_thinking"]}
    if asks:
        messages = messages[:-1] if messages and messages[-1].get("role") == "assistant" else messages
        return read_dialogue(messages, row.get("tools"), switches, asks=True)
    loss = {key: row.get(key) for key in ("loss_mask", "label") if key == "loss_mask" or isinstance(row.get(key), list)}
    return trained_on_some(with_loss_mask(read_dialogue(messages, row.get("tools"), switches), loss))


def trained_on_some(dialogue: Dialogue) -> Dialogue:
    """Return the dialogue. Raises RowError where it has answers, and none of them is to be trained on."""
    answers = [message.trained for message in dialogue.messages if message.role == "assistant"]
    if answers and not any(answers):
        raise RowError("none of its answers is to be trained on")
    return dialogue


def listed(row: dict, key: str) -> list[dict]:
    """Return the messages at a key, a list or its JSON text.

    Raises:
        RowError: If they are none.
    """
    messages = value_at(row, key)
    if isinstance(messages, str) and messages.lstrip().startswith("["):
        messages = parsed(key, messages)
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise RowError(f"{key!r} is not a list of objects")
    return messages


def sharegpt_messages(messages: list[dict]) -> list[dict]:
    """Return messages {"from", "value"} in OpenAI's form."""
    read = []
    for message in messages:
        said_by = message.get("from")
        role = SHAREGPT_ROLES.get(said_by) if isinstance(said_by, str) else None
        if role is None:
            found = repr(shown(said_by)) if isinstance(said_by, str) else shown(said_by)
            raise RowError(f"from is {found}, expected {', '.join(SHAREGPT_ROLES)}")
        rest = {key: value for key, value in message.items() if key in (*REASONING, *WEIGHTS)}
        read.append({"role": role, "content": value_at(message, "value")} | rest)
    return read


def with_calls(messages: list[dict], has_tools: bool) -> list[dict]:
    """Return messages whose tool calls are at tool_calls.

    Calls may come as roles of their own, as in ShareGPT and Toucan, or, where a row has tools, as text in Hermes' form.

    Raises:
        RowError: For a call that is no JSON.
    """
    read: list[dict] = []
    before = None
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role in CALLS:
            calls = parsed(f"content of {role}", content) if isinstance(content, str) else content
            calls = calls if isinstance(calls, list) else [calls]
            if before in CALLS:  # at once with the one before
                calls = [*read.pop()["tool_calls"], *calls]
            message = message | {"role": "assistant", "content": None, "tool_calls": calls}
        elif role in RESULTS:
            message = message | {"role": "tool"}
        elif has_tools and role == "assistant" and isinstance(content, str) and "<tool_call>" in content:
            calls = [parsed("<tool_call>", call) for call in HERMES_CALL.findall(content)]
            message = message | {"content": HERMES_CALL.sub("", content).strip() or None, "tool_calls": calls}
        if has_tools and message.get("role") == "tool" and isinstance(content, str):
            message = message | {"content": HERMES_RESULT.sub(r"\1", content)}
        read.append(message)
        before = role
    return read


def xlam_dialogue(row: dict) -> Dialogue:
    """Return the dialogue of xLAM's columns: a query and the calls that answer it."""
    answers = value_at(row, "answers")
    calls = parsed("answers", answers) if isinstance(answers, str) else answers
    asked = {"role": "user", "content": one_text(row, "query")}
    return read_dialogue([asked, {"role": "assistant", "content": None, "tool_calls": calls}], value_at(row, "tools"))


def one_text(row: dict, key: str) -> str:
    """Return the only text at a key.

    Raises:
        RowError: If there are several.
    """
    texts = texts_at(row, key)
    if len(texts) != 1:
        raise RowError(f"{len(texts)} texts at {key!r}, expected one")
    return texts[0]


def texts_at(row: dict, key: str) -> list[str]:
    """Return the text or the list of texts at a key, as a list."""
    value = value_at(row, key)
    return [text_of(key, text) for text in (value if isinstance(value, list) else [value])]


SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "function_call": "function_call",
    "observation": "tool",
    "tool": "tool",
}
CALLS, RESULTS = ("function_call", "tool_call"), ("observation", "tool_response")
HERMES_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
HERMES_RESULT = re.compile(r"^\s*<tool_response>\s*(.*?)\s*</tool_response>\s*$", re.DOTALL)
MEDIA = ("images", "image", "image_url", "videos", "video", "audios", "audio")
SPOKEN = ("system", "tools", "chat_template_kwargs", "enable_thinking", "loss_mask", "label")
SCHEMAS = (
    pairs("src", "tgt"),
    pairs("content", "summary"),
    Schema(
        "instruction/output",
        ("instruction", "output"),
        True,
        lambda row: alpaca_dialogue(row, "output"),
        ("input", "history", "system"),
        ask=lambda row: alpaca_dialogue(row, None),
    ),
    Schema(
        "conversations",
        ("conversations",),
        True,
        lambda row: spoken_dialogue(row, sharegpt_messages(listed(row, "conversations"))),
        SPOKEN,
        parts=("from", "value", *REASONING, *WEIGHTS),
        ask=lambda row: spoken_dialogue(row, sharegpt_messages(listed(row, "conversations")), asks=True),
    ),
    Schema("query/answers", ("query", "answers", "tools"), True, xlam_dialogue, ()),
    Schema(
        "messages",
        ("messages",),
        True,
        lambda row: spoken_dialogue(row, listed(row, "messages")),
        SPOKEN,
        parts=MESSAGE_KEYS,
        ask=lambda row: spoken_dialogue(row, listed(row, "messages"), asks=True),
    ),
    pairs("question", "answer"),
    pairs("prompt", "response"),
    pairs("input", "output"),
    pairs("prompt", "completion"),
)
