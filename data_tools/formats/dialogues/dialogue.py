"""What supervised fine-tuning learns from: questions with their answers, and the JSON rows that hold them.

    {"src": "...", "tgt": "..."}                                    pairs; lists of both are a dialogue
    {"content": "...", "summary": "..."}                            AdvertiseGen
    {"instruction": "...", "input": "...", "output": "..."}         Alpaca; input may be empty or left out; before it
                                                                    "history": [["question", "answer"], ...]
    {"conversations": [{"from": "human", "value": "..."}, ...]}     ShareGPT: human and gpt in turn, system first
    {"messages": [{"role": "user", "content": "..."}, ...]}         user and assistant in turn, system first

Each may have "system", a text that sets the scene. Every other key is ignored and reported (Schema.unused).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Schema:
    """One way to write a dialogue. keys: those that a row must have; chat: whether a chat template is its usual
    form; read: from a row with these keys to a dialogue, raising RowError for values that it cannot be. further: keys
    that a row may have; parts: those that the messages at its one key have."""

    name: str
    keys: tuple[str, ...]
    chat: bool
    read: Callable[[dict], Dialogue]
    further: tuple[str, ...] = ("system",)
    parts: tuple[str, ...] = ()

    def unused(self, row: dict) -> list[str]:
        """The keys of a row that nothing is made of; those of messages behind a colon."""
        names = [shown(key) for key in row if key not in self.keys and key not in self.further]
        for message in row.get(self.keys[0], ()) if self.parts else ():
            names += [f"{self.keys[0]}: {shown(key)}" for key in message if key not in self.parts]
        return names


class RowError(Exception):
    """Why a row is no dialogue. Becomes a fault with file and line (data_tools.formats.dialogues.rows)."""


def pairs(prompt: str, response: str) -> Schema:
    """Questions at one key, answers at another."""
    return Schema(f"{prompt}/{response}", (prompt, response), False, lambda row: _pairs(row, prompt, response))


def find_schema(rows: Iterable[dict], prompt_column: str | None = None, response_column: str | None = None) -> Schema:
    """The schema that fits most of these rows, at least half of them; with both columns named, pairs of these.

    Raises DataError that names the keys found and the schemas there are.
    """
    if prompt_column and response_column:
        return pairs(prompt_column, response_column)
    if prompt_column or response_column:
        raise DataError("--prompt_column and --response_column: give both or neither.")
    rows = list(rows)
    fitting = {schema: sum(set(schema.keys) <= set(row) for row in rows) for schema in SCHEMAS}
    best = max(SCHEMAS, key=lambda schema: fitting[schema])
    if rows and 2 * fitting[best] >= len(rows):
        return best
    found = ", ".join(sorted({shown(key) for row in rows for key in row})) or "none"
    known = "; ".join(", ".join(schema.keys) for schema in SCHEMAS)
    raise DataError(
        f"the keys of the first rows are {found}; known are {known}. "
        "Name the right ones: --prompt_column KEY --response_column KEY."
    )


def _pairs(row: dict, prompt_key: str, response_key: str) -> Dialogue:
    prompts, answers = _texts(row, prompt_key), _texts(row, response_key)
    if len(prompts) != len(answers):
        raise RowError(f"{len(prompts)} texts at {prompt_key!r}, but {len(answers)} at {response_key!r}")
    return _dialogue(zip(prompts, answers, strict=True), _optional(row, "system"))


def _alpaca(row: dict) -> Dialogue:
    [instruction], [output] = _one(row, "instruction"), _one(row, "output")
    context = _optional(row, "input")
    question = f"{instruction}\n\n{context}" if context else instruction
    return _dialogue([*_history(row), (question, output)], _optional(row, "system"))


def _history(row: dict) -> list[tuple[str, str]]:
    """What was said before."""
    history = [] if row.get("history") is None else row["history"]
    if not isinstance(history, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in history):
        raise RowError(f"'history' is not a list of [question, answer]: {shown(history)}")
    pairs = [_texts({"history": pair}, "history") for pair in history]
    return [(question, answered) for question, answered in pairs]


def _optional(row: dict, key: str) -> str:
    """The text at a key that may be missing, null or empty."""
    if row.get(key) in (None, ""):
        return ""
    [text] = _one(row, key)
    return text


def _messages(row: dict, key: str, role_key: str, text_key: str, roles: dict[str, str]) -> Dialogue:
    """Messages of a row in turn. roles: the row's word for a role -> system, user or assistant."""
    messages = _value(row, key)
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise RowError(f"{key!r} is not a list of objects")
    spoken = []
    for message in messages:
        said_by = message.get(role_key)
        role = roles.get(said_by) if isinstance(said_by, str) else None
        if role is None:
            found = repr(shown(said_by)) if isinstance(said_by, str) else shown(said_by)
            raise RowError(f"{role_key} is {found}, expected {', '.join(roles)}")
        spoken.append((role, _one(message, text_key)[0]))
    system = _optional(row, "system")
    if spoken and spoken[0][0] == "system":
        if system not in ("", spoken[0][1]):
            raise RowError("'system' and the first message give two system texts, expected one")
        system = spoken.pop(0)[1]
    if len(spoken) % 2 or [role for role, _ in spoken] != ["user", "assistant"] * (len(spoken) // 2):
        order = ", ".join(role for role, _ in spoken)
        raise RowError(f"user and assistant do not take turns, ending with the assistant: {order or 'nobody'}")
    texts = [text for _, text in spoken]
    return _dialogue(zip(texts[0::2], texts[1::2], strict=True), system)


def _dialogue(turns: Iterable[tuple[str, str]], system: str = "") -> Dialogue:
    dialogue = Dialogue(tuple(Turn(prompt, answer) for prompt, answer in turns), system)
    if not dialogue.turns:
        raise RowError("no question and no answer")
    if not all(turn.answer for turn in dialogue.turns):
        raise RowError("an empty answer")
    return dialogue


def _one(row: dict, key: str) -> list[str]:
    texts = _texts(row, key)
    if len(texts) != 1:
        raise RowError(f"{len(texts)} texts at {key!r}, expected one")
    return texts


def _texts(row: dict, key: str) -> list[str]:
    """The text or the list of texts at a key, as a list."""
    value = _value(row, key)
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


def _value(row: dict, key: str):
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
    Schema("instruction/output", ("instruction", "output"), True, _alpaca, ("input", "history", "system")),
    Schema(
        "conversations",
        ("conversations",),
        True,
        lambda row: _messages(row, "conversations", "from", "value", SHAREGPT_ROLES),
        parts=("from", "value"),
    ),
    Schema(
        "messages",
        ("messages",),
        True,
        lambda row: _messages(row, "messages", "role", "content", MESSAGE_ROLES),
        parts=("role", "content"),
    ),
)
