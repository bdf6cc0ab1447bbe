"""What supervised fine-tuning learns from: questions with their answers, and the JSON rows that hold them.

    {"src": "...", "tgt": "..."}                                    pairs; lists of both are a dialogue
    {"content": "...", "summary": "..."}                            AdvertiseGen
    {"instruction": "...", "input": "...", "output": "..."}         Alpaca; input may be empty or left out; before it
                                                                    "history": [["question", "answer"], ...]
    {"conversations": [{"from": "human", "value": "..."}, ...]}     ShareGPT: human and gpt in turn, system first
    {"messages": [{"role": "user", "content": "..."}, ...]}         user and assistant in turn, system first

Each may have "system", a text that sets the scene. Every other key is ignored and reported (Schema.unused).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from data_tools.formats.errors import DataError
from data_tools.formats.json_files import shown


@dataclass(frozen=True)
class Turn:
    prompt: str
    answer: str


@dataclass(frozen=True)
class Dialogue:
    """One row: questions and answers in turn, after an optional system text."""

    turns: tuple[Turn, ...]
    system: str = ""


Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Schema(Generic[Entry]):
    """One way to write an entry, such as a dialogue. keys: those that a row must have; chat: whether a chat template is
    its usual form; read: from a row with these keys to an entry, raising RowError for values that it cannot be.
    further: keys that a row may have; parts: those that the messages at its first key have."""

    name: str
    keys: tuple[str, ...]
    chat: bool
    read: Callable[[dict], Entry]
    further: tuple[str, ...] = ("system",)
    parts: tuple[str, ...] = ()

    def fits(self, row: dict) -> bool:
        return set(self.keys) <= set(row)

    def unused(self, row: dict) -> list[str]:
        """The keys of a row that nothing is made of; those of messages behind a colon."""
        names = [shown(key) for key in row if key not in self.keys and key not in self.further]
        for message in row.get(self.keys[0], ()) if self.parts else ():
            names += [f"{self.keys[0]}: {shown(key)}" for key in message if key not in self.parts]
        return names


class RowError(Exception):
    """Why a row is no dialogue. Becomes a fault with file and line (data_tools.dialogues.rows)."""


def pairs(prompt: str, response: str) -> Schema[Dialogue]:
    """Questions at one key, answers at another."""
    return Schema(f"{prompt}/{response}", (prompt, response), False, lambda row: _pairs(row, prompt, response))


def find_schema(
    rows: Iterable[dict], prompt_column: str | None = None, response_column: str | None = None
) -> Schema[Dialogue]:
    """The schema that fits most of these rows, at least half of them; with both columns named, pairs of these.

    Raises DataError that names the keys found and the schemas there are.
    """
    if prompt_column and response_column:
        return pairs(prompt_column, response_column)
    if prompt_column or response_column:
        raise DataError("--prompt_column and --response_column: give both or neither.")
    return best_schema(list(rows), SCHEMAS, "--prompt_column KEY --response_column KEY")


def best_schema(rows: list[dict], schemas: Sequence[Schema[Entry]], flags: str) -> Schema[Entry]:
    """The first schema of those that fit most rows, at least half of them. flags: that name other keys. Raises
    DataError."""
    fitting = [sum(schema.fits(row) for row in rows) for schema in schemas]
    if rows and 2 * max(fitting) >= len(rows):
        return schemas[fitting.index(max(fitting))]
    found = ", ".join(sorted({shown(key) for row in rows for key in row})) or "none"
    known = "; ".join(dict.fromkeys(", ".join(schema.keys) for schema in schemas))
    raise DataError(f"the keys of the first rows are {found}; known are {known}. Name the right ones: {flags}.")


def _pairs(row: dict, prompt_key: str, response_key: str) -> Dialogue:
    prompts, answers = texts_at(row, prompt_key), texts_at(row, response_key)
    if len(prompts) != len(answers):
        raise RowError(f"{len(prompts)} texts at {prompt_key!r}, but {len(answers)} at {response_key!r}")
    return dialogue_of(zip(prompts, answers, strict=True), optional_text(row, "system"))


def alpaca_dialogue(row: dict, output: str) -> Dialogue:
    """output: the key of the answer."""
    instruction, answer = one_text(row, "instruction"), one_text(row, output)
    context = optional_text(row, "input")
    question = f"{instruction}\n\n{context}" if context else instruction
    return dialogue_of([*_history(row), (question, answer)], optional_text(row, "system"))


def _history(row: dict) -> list[tuple[str, str]]:
    """What was said before."""
    history = [] if row.get("history") is None else row["history"]
    if not isinstance(history, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in history):
        raise RowError(f"'history' is not a list of [question, answer]: {shown(history)}")
    pairs = [texts_at({"history": pair}, "history") for pair in history]
    return [(question, answered) for question, answered in pairs]


def optional_text(row: dict, key: str) -> str:
    """The text at a key that may be missing, null or empty."""
    if row.get(key) in (None, ""):
        return ""
    return one_text(row, key)


def spoken_dialogue(row: dict, key: str, role_key: str, text_key: str, roles: dict[str, str]) -> Dialogue:
    """Messages of a row in turn. roles: the row's word for a role -> system, user or assistant."""
    messages = value_at(row, key)
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise RowError(f"{key!r} is not a list of objects")
    spoken = []
    for message in messages:
        said_by = message.get(role_key)
        role = roles.get(said_by) if isinstance(said_by, str) else None
        if role is None:
            found = repr(shown(said_by)) if isinstance(said_by, str) else shown(said_by)
            raise RowError(f"{role_key} is {found}, expected {', '.join(roles)}")
        spoken.append((role, one_text(message, text_key)))
    system = optional_text(row, "system")
    if spoken and spoken[0][0] == "system":
        if system not in ("", spoken[0][1]):
            raise RowError("'system' and the first message give two system texts, expected one")
        system = spoken.pop(0)[1]
    if len(spoken) % 2 or [role for role, _ in spoken] != ["user", "assistant"] * (len(spoken) // 2):
        order = ", ".join(role for role, _ in spoken)
        raise RowError(f"user and assistant do not take turns, ending with the assistant: {order or 'nobody'}")
    texts = [text for _, text in spoken]
    return dialogue_of(zip(texts[0::2], texts[1::2], strict=True), system)


def dialogue_of(turns: Iterable[tuple[str, str]], system: str = "") -> Dialogue:
    dialogue = Dialogue(tuple(Turn(prompt, answer) for prompt, answer in turns), system)
    if not dialogue.turns:
        raise RowError("no question and no answer")
    if not all(turn.answer for turn in dialogue.turns):
        raise RowError("an empty answer")
    return dialogue


def one_text(row: dict, key: str) -> str:
    texts = texts_at(row, key)
    if len(texts) != 1:
        raise RowError(f"{len(texts)} texts at {key!r}, expected one")
    return texts[0]


def texts_at(row: dict, key: str) -> list[str]:
    """The text or the list of texts at a key, as a list."""
    value = value_at(row, key)
    texts = value if isinstance(value, list) else [value]
    for text in texts:
        if text is None:
            raise RowError(f"{key!r} is null, expected a text")
        if not isinstance(text, str):
            raise RowError(f"{key!r} is not a text: {shown(text)}")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise RowError(f"{key!r} has half a surrogate pair (\\ud800 to \\udfff), no character") from None
    return texts


def value_at(row: dict, key: str):
    if key not in row:
        raise RowError(f"no key {key!r}, only {', '.join(map(shown, row)) or 'none'}")
    return row[key]


SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
}
MESSAGE_ROLES = {"system": "system", "user": "user", "assistant": "assistant"}
SCHEMAS = (
    pairs("src", "tgt"),
    pairs("content", "summary"),
    Schema(
        "instruction/output",
        ("instruction", "output"),
        True,
        lambda row: alpaca_dialogue(row, "output"),
        ("input", "history", "system"),
    ),
    Schema(
        "conversations",
        ("conversations",),
        True,
        lambda row: spoken_dialogue(row, "conversations", "from", "value", SHAREGPT_ROLES),
        parts=("from", "value"),
    ),
    Schema(
        "messages",
        ("messages",),
        True,
        lambda row: spoken_dialogue(row, "messages", "role", "content", MESSAGE_ROLES),
        parts=("role", "content"),
    ),
)
