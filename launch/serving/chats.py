"""Chats that are to be answered: the dialogue, and which calls of tools an answer may or must have."""

from dataclasses import dataclass, field

from data_tools.dialogues.messages import Dialogue, RowError, read_dialogue, schemas_of
from data_tools.formats.json_files import shown
from launch.serving.request import Reason, Refusal


@dataclass(frozen=True)
class Chat:
    """A chat to answer.

    Attributes:
        schemas: Of the arguments of each tool that may be called, by its name.
        forced: An answer is a call.
        several: Or more than one.
    """

    dialogue: Dialogue
    schemas: dict[str, dict] = field(default_factory=dict)
    forced: bool = False
    several: bool = True


def read_chat(
    messages: list[dict],
    tools: list[dict] | None = None,
    named: str | None = None,
    forced: bool = False,
    several: bool = True,
    switches: dict | None = None,
) -> Chat:
    """Return the chat of a request in the OpenAI API's form.

    named: the tool that is to be called. switches: variables of the chat template. Raises Refusal.
    """
    try:
        dialogue = read_dialogue(messages, tools, switches, asks=True)
    except (RowError, RecursionError) as error:
        raise Refusal(Reason.INVALID, f"messages: {error}", "messages") from None
    schemas = schemas_of(dialogue)
    if forced and (named or not schemas) and named not in schemas:
        found = f"found {shown(named or 'required')}, the tools are {shown(', '.join(schemas), 150) or 'none'}"
        raise Refusal(Reason.INVALID, f"tool_choice: {found}", "tool_choice")
    return Chat(dialogue, {named: schemas[named]} if named else schemas, forced, several and named is None)
