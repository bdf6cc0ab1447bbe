"""Dialogues in OpenAI's form: messages with tool calls and reasoning, the tools offered, and switches of a template.

Every reader of rows and every request makes a Dialogue of what it has; chat templates (chat_template.py) read it from
there, in training as in serving.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from data_tools.formats.json_files import quoted, shown

ROLES = ("system", "developer", "user", "assistant", "tool")
REASONING = ("reasoning_content", "reasoning", "thinking")  # keys that servers of reasoning models return it at
WEIGHTS = ("weight", "loss", "train", "label")  # OpenAI's, ms-swift's, axolotl's, PaddleFormers' switch of a message
MESSAGE_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name", *REASONING, *WEIGHTS)
TEXT_PARTS = ("text", "input_text", "output_text")


class RowError(Exception):
    """Why a row is no dialogue. Becomes a fault with file and line (data_tools.dialogues.rows)."""


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool.

    Attributes:
        arguments: The text of a JSON object.
        id: "" where nothing names the call.
    """

    name: str
    arguments: str
    id: str = ""

    def as_json(self) -> dict:
        """Return the call in OpenAI's form."""
        function = {"name": self.name, "arguments": json.loads(self.arguments)}
        return ({"id": self.id} if self.id else {}) | {"type": "function", "function": function}


@dataclass(frozen=True)
class Message:
    """A message of a dialogue.

    Attributes:
        content: None beside tool calls alone.
        trained: Whether an assistant's message counts in the loss.
    """

    role: str
    content: str | None = None
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    trained: bool = True

    @property
    def text(self) -> str:
        """The content, "" where there is none."""
        return self.content or ""

    @property
    def size(self) -> int:
        """Characters, about."""
        return len(self.text) + len(self.reasoning) + sum(len(call.arguments) for call in self.tool_calls)

    def as_json(self) -> dict[str, Any]:
        """Return the message in OpenAI's form, arguments of calls as objects, which templates read."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.as_json() for call in self.tool_calls]
        return message | {key: getattr(self, key) for key in ("tool_call_id", "name") if getattr(self, key)}


@dataclass(frozen=True)
class Dialogue:
    """Messages up to an answer, or up to what is to be answered.

    Attributes:
        tools: The text of a JSON list, "" for none.
        switches: The text of a JSON object of variables of the chat template, "" for none.
    """

    messages: tuple[Message, ...]
    tools: str = ""
    switches: str = ""

    @property
    def size(self) -> int:
        """Number of characters of the messages and tools."""
        return sum(message.size for message in self.messages) + len(self.tools)

    @property
    def has_tools(self) -> bool:
        """Whether the dialogue offers tools or calls one."""
        return bool(self.tools) or any(message.tool_calls or message.role == "tool" for message in self.messages)

    def as_json(self) -> dict[str, Any]:
        """Return what a template gets: messages, and tools and switches where there are some."""
        values: dict[str, Any] = {"messages": [message.as_json() for message in self.messages]}
        values |= {"tools": json.loads(self.tools)} if self.tools else {}
        return values | ({"chat_template_kwargs": json.loads(self.switches)} if self.switches else {})


def schemas_of(dialogue: Dialogue) -> dict[str, dict]:
    """Return the schema of the arguments of each tool, by its name."""
    functions = (tool["function"] for tool in json.loads(dialogue.tools or "[]"))
    return {one["name"]: one.get("parameters") or {"type": "object"} for one in functions}


def plain_dialogue(turns: Iterable[tuple[str, str]], system: str = "", asked: str | None = None) -> Dialogue:
    """Return the dialogue of questions with their answers, and of a last one where `asked` is one.

    Raises:
        RowError: For a blank answer.
    """
    messages = [Message("system", system)] if system else []
    for question, answer in turns:
        messages += [Message("user", question), Message("assistant", answer)]
    messages += [] if asked is None else [Message("user", asked)]
    return checked(Dialogue(tuple(messages)), asks=asked is not None)


def read_dialogue(messages: object, tools: object = None, switches: object = None, asks: bool = False) -> Dialogue:
    """Return the dialogue of messages in OpenAI's form, of a row or a request.

    Args:
        messages: A list of objects with role, content (a text, parts of text, or null beside calls), tool_calls,
            tool_call_id, name, reasoning_content, weight and their other names.
        tools: A list of functions, or its JSON text.
        switches: Variables for the chat template, such as {"enable_thinking": false}.
        asks: The last message is to be answered; else it is an answer.

    Raises:
        RowError: Names the key, what was found and what is expected.
    """
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise RowError(f"'messages' is not a list of objects: {quoted(messages)}")
    read = tuple(_message(message) for message in messages)
    return checked(Dialogue(read, read_tools(tools), _object_text("chat_template_kwargs", switches)), asks)


def checked(dialogue: Dialogue, asks: bool = False) -> Dialogue:
    """Return the dialogue.

    Raises:
        RowError: If roles are out of turn, an answer is blank, or a result has no call.
    """
    before, open_calls = "", set[str]()
    allowed = {
        "": ("system", "developer", "user"),
        "system": ("user",),
        "user": ("assistant",),
        "assistant": ("user",),
        "call": ("tool",),
        "tool": ("tool", "assistant", "user"),
    }
    for message in dialogue.messages:
        if message.role not in allowed[before]:
            order = ", ".join(message.role for message in dialogue.messages)
            raise RowError(
                f"{message.role} follows {before or 'nothing'}, expected {' or '.join(allowed[before])}: {order}"
            )
        if message.role == "tool" and open_calls and message.tool_call_id not in {"", *open_calls}:
            raise RowError(f"tool_call_id {shown(message.tool_call_id)!r} is of no call before it")
        if message.role == "assistant":
            if not message.text.strip() and not message.tool_calls:
                raise RowError("an empty answer" if not message.text else "an answer of spaces alone")
            open_calls = {call.id for call in message.tool_calls if call.id}
        before = "call" if message.tool_calls else "system" if message.role == "developer" else message.role
    ends = ("user", "tool") if asks else ("assistant", "call")
    if before not in ends:
        order = ", ".join(message.role for message in dialogue.messages)
        if not order:
            raise RowError("no question and no answer")
        raise RowError(
            f"the last message is no question: {order}" if asks else f"the last message is no answer: {order}"
        )
    return dialogue


def row_json(dialogue: Dialogue) -> dict[str, Any]:
    """Return the row of a dialogue: what templates get, and which answers are not trained on."""
    row = dialogue.as_json()
    for message, written in zip(dialogue.messages, row["messages"], strict=True):
        if not message.trained:
            written["weight"] = 0
    return row


def read_tools(tools: object) -> str:
    """Return the tools as the text of a JSON list in OpenAI's form; "" for none. Raises RowError."""
    tools = parsed("tools", tools) if isinstance(tools, str) and tools.strip() else tools
    if tools in (None, "", [], {}):
        return ""
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RowError(f"'tools' is not a list of objects, or its JSON text: {quoted(tools)}")
    functions = [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools]
    for tool in functions:
        if not isinstance(tool["function"], dict) or not isinstance(tool["function"].get("name"), str):
            raise RowError(f"a tool in 'tools' has no name: {quoted(tool)}")
    return text_of("tools", json.dumps(functions, ensure_ascii=False))


def read_call(call: object, where: str = "tool_calls") -> ToolCall:
    """Return a call of {"name", "arguments"}, or OpenAI's {"id", "function": {...}}. Raises RowError."""
    function = call.get("function", call) if isinstance(call, dict) else call
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise RowError(f"{where}: a call is not an object: {quoted(call)}")
    name, arguments = function.get("name"), function.get("arguments", function.get("parameters"))
    if not isinstance(name, str) or not name:
        raise RowError(f"{where}: a call has no name: {quoted(call)}")
    found = parsed(f"{where}: arguments of {shown(name)}", arguments) if isinstance(arguments, str) else arguments
    if not isinstance(found, dict):
        raise RowError(f"{where}: arguments of {shown(name)} are no JSON object: {quoted(arguments)}")
    try:
        written = json.dumps(found, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise RowError(f"{where}: arguments of {shown(name)} have NaN or infinity: {quoted(arguments)}") from None
    return ToolCall(text_of(where, name), text_of(where, written), text_of("id", call.get("id") or ""))


def text_of(key: str, content: object) -> str:
    """Return a text, or the parts of one together.

    Raises:
        RowError: For parts that are no text with their type.
    """
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        for part in content:
            if part.get("type") not in TEXT_PARTS:
                raise RowError(
                    f"{key!r} has a part of type {shown(part.get('type'))!r}: models here read text alone. Leave such "
                    "rows out"
                )
        return "".join(text_of(key, part.get("text")) for part in content)
    if content is None:
        raise RowError(f"{key!r} is null, expected a text")
    if not isinstance(content, str):
        raise RowError(f"{key!r} is not a text: {shown(content)}")
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        raise RowError(f"{key!r} has half a surrogate pair (\\ud800 to \\udfff), no character") from None
    return content


def _message(message: dict) -> Message:
    role = message.get("role")
    if role not in ROLES:
        found = quoted(role)
        raise RowError(f"role is {found}, expected {', '.join(ROLES)}")
    calls = message.get("tool_calls")
    if calls and role != "assistant":
        raise RowError(f"tool_calls of a message of {role}, expected of assistant")
    if calls and not isinstance(calls, list):
        raise RowError(f"tool_calls is not a list: {quoted(calls)}")
    read = tuple(read_call(call) for call in calls or ())
    content = message.get("content") if read else value_at(message, "content")
    reasoning = next((message[key] for key in REASONING if message.get(key)), "")
    return Message(
        role,
        None if content is None and read else text_of("content", content),
        text_of("reasoning_content", reasoning),
        read,
        text_of("tool_call_id", message.get("tool_call_id") or ""),
        text_of("name", message.get("name") or ""),
        all(_is_trained(key, message[key]) for key in WEIGHTS if message.get(key) is not None),
    )


def _is_trained(key: str, value: object) -> bool:
    if isinstance(value, (bool, int, float)) and value in (0, 1):
        return bool(value)
    raise RowError(f"{key} is {quoted(value)}, expected true or 1 to train on a message, false or 0 to read it alone")


def with_loss_mask(dialogue: Dialogue, row: dict) -> Dialogue:
    """Return the dialogue with the loss mask of a row.

    The mask has a number for each message at loss_mask, or for each answer at label, as in PaddleFormers.

    Raises:
        RowError: If it is no such list.
    """
    for key, roles in (("loss_mask", ROLES), ("label", ("assistant",))):
        mask = row.get(key)
        places = [place for place, message in enumerate(dialogue.messages) if message.role in roles]
        if mask is None:
            continue
        if not isinstance(mask, list) or len(mask) != len(places):
            raise RowError(f"{key!r} is {quoted(mask)}, expected a list of {len(places)} numbers, 0 or 1")
        trained = {place: _is_trained(key, number) for place, number in zip(places, mask, strict=True)}
        both = enumerate(dialogue.messages)
        messages = [replace(one, trained=one.trained and trained.get(place, True)) for place, one in both]
        dialogue = replace(dialogue, messages=tuple(messages))
    return dialogue


def _object_text(key: str, value: object) -> str:
    value = parsed(key, value) if isinstance(value, str) and value.strip() else value
    if value in (None, "", {}):
        return ""
    if not isinstance(value, dict):
        raise RowError(f"{key!r} is not an object: {quoted(value)}")
    return text_of(key, json.dumps(value, ensure_ascii=False))


def parsed(what: str, text: str) -> Any:
    """Return the JSON value of a text.

    Raises:
        RowError: With the name `what`.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowError(f"{what}: no JSON: {shown(text)} ({error})") from None


def value_at(row: dict, key: str):
    """Return the value at a key.

    Raises:
        RowError: If the row lacks it.
    """
    if key not in row:
        raise RowError(f"no key {key!r}, only {', '.join(map(shown, row)) or 'none'}")
    return row[key]
