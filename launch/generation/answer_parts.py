r"""What is in the text of an answer: reasoning, what is said, and calls of tools, found while the text is made.

    form = find_form(template.source)
    reader = Reader(Reading(form, {"tide_at": {}}, reasons=True))
    parts = reader.put("<think>\nhm</think>\n\n<tool_") + reader.put('call>{"name": ...') + reader.rest()

Each model writes calls as its chat template does. Text that begins like a call and is none stays text. The parts
together are the same wherever the text is cut.
Source of the forms: the templates as they are published, and vLLM's vllm/tool_parsers and vllm/reasoning.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from data_tools.dialogues.messages import RowError, ToolCall, read_call
from launch.generation.text import overlap

OPEN, CLOSE = "<think>", "</think>"
NAME, QUOTED, ARGUMENTS = "NAME", "QUOTED", "ARGUMENTS"  # in CallForm.call
KEY, VALUE = "KEY", "VALUE"  # in CallForm.argument


@dataclass(frozen=True)
class CallForm:
    """The way a model writes calls.

    Attributes:
        known_by: Texts that a template with this form has.
        begin: What stands before a call. An answer that is a call from its first character on, has one of `starts`
            there; "NAME": the name of a tool.
        end: What stands behind a call; "": the answer ends.
        around: Left out of what is said.
        within: Other special tokens of a call.
        read: The calls from a text between begin and end. Raises ValueError or RowError where it has none.
        call: A call whole, for a grammar.
        between, first, last: What stands between calls, before the first one and behind the last one.
        several: Whether an answer can have more than one call.
        argument: One argument, where ARGUMENTS are no JSON object: a text as it is, any other value as JSON.
        undeclared: The types of an argument that the tool does not declare; none: what it is as JSON, else a text.
    """

    known_by: tuple[str, ...]
    read: Callable[[str], list[ToolCall]]
    call: str
    begin: str = ""
    end: str = ""
    starts: tuple[str, ...] = ()
    around: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    between: str = "\n"
    first: str = ""
    last: str = ""
    several: bool = True
    argument: str = ""
    undeclared: tuple[str, ...] = ()

    @property
    def marks(self) -> tuple[str, ...]:
        """All texts that mark a call."""
        return tuple(filter(None, (self.begin, self.end, *self.starts, *self.around, *self.within)))


def _object(text: str) -> list[ToolCall]:
    return [read_call(json.loads(text))]


def _objects(text: str) -> list[ToolCall]:
    """Return the objects with ";" between them, behind the token of a call."""
    text, calls = text.strip().removeprefix(PYTHON).strip(), []
    while text:
        found, end = json.JSONDecoder().raw_decode(text)
        calls.append(read_call(found))
        text = text[end:].lstrip("; \n")
    return calls


def _list(text: str) -> list[ToolCall]:
    return [read_call(call) for call in json.loads(text)]


def _name_and_arguments(text: str) -> list[ToolCall]:
    name, _, arguments = text.strip().partition("\n")
    return [read_call({"name": name.strip(), "arguments": arguments})]


def _behind_marks(text: str) -> list[ToolCall]:
    name, _, arguments = text.partition("[ARGS]")
    return [read_call({"name": name.partition("[CALL_ID]")[0].strip(), "arguments": arguments})]


def _behind_separator(text: str) -> list[ToolCall]:
    name, _, rest = text.partition(SEPARATOR)
    if FENCE in rest:  # function<separator>name, and JSON as Markdown has it
        name, _, rest = rest.partition(FENCE)
        rest = rest.strip().removesuffix("```")
    return [read_call({"name": name.strip(), "arguments": rest})]


def _behind_keys(text: str) -> list[ToolCall]:
    name, key, rest = text.partition("<arg_key>")
    return [_call_of_texts(name.strip(), ARGUMENT_OF_KEY, key + rest)]


def _in_tags(text: str) -> list[ToolCall]:
    if not (call := FUNCTION.fullmatch(text)):
        raise ValueError
    return [_call_of_texts(call[1], PARAMETER, call[2])]


def _call_of_texts(name: str, argument: re.Pattern, text: str) -> ToolCall:
    """Return a call whose arguments are all texts, of a text that is one argument behind the other."""
    found, place = {}, 0
    while match := argument.match(text, place):
        found[match[1]], place = match[2], match.end()
    if not name or text[place:].strip():
        raise ValueError
    return ToolCall(name, json.dumps(found, ensure_ascii=False))


def types_of(schema: Any) -> list[str]:
    """Return the types that a schema of one argument names, also in its alternatives; none: it leaves them open."""
    schema = schema if isinstance(schema, dict) else {}
    if types := schema.get("type"):
        return types if isinstance(types, list) else [types]
    alternatives = [one for key in ("anyOf", "oneOf") for one in schema.get(key) or ()]
    values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
    return [*map(_type, values), *(kind for one in alternatives for kind in types_of(one))]


def _type(value: object) -> str:
    return "null" if value is None else TYPES[type(value)]


def _typed(call: ToolCall, schema: dict, undeclared: tuple[str, ...]) -> ToolCall:
    """Return a call of texts with the values that they stand for by the schema of its arguments."""
    declared = schema.get("properties") or {}
    values = {
        key: _value(text, types_of(declared[key]) if key in declared else undeclared)
        for key, text in json.loads(call.arguments).items()
    }
    return replace(call, arguments=json.dumps(values, ensure_ascii=False))


def _value(text: str, types: list[str] | tuple[str, ...]) -> Any:
    try:
        value = PYTHON_WORDS[text] if text in PYTHON_WORDS else NUMBERS.decode(text)
    except ValueError:
        return text
    kind = _type(value)
    fits = kind in types or (kind == "integer" and "number" in types)
    return value if not types or (fits and kind != "string") else text


def _number(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value


NUMBERS = json.JSONDecoder(parse_float=_number, parse_constant=_number)  # refuses NaN and infinity
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
PYTHON_WORDS = {"True": True, "False": False, "None": None}  # as Qwen3-Coder's template writes such values
ARGUMENT_OF_KEY = re.compile(r"\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
PYTHON, SEPARATOR, FENCE = "<|python_tag|>", "<｜tool▁sep｜>", "\n```json\n"
JSON_CALL = f'{{"name": {QUOTED}, "arguments": {ARGUMENTS}}}'
HERMES = CallForm(("<tool_call>",), _object, f"<tool_call>\n{JSON_CALL}\n</tool_call>", "<tool_call>", "</tool_call>")
DEEPSEEK = CallForm(
    (SEPARATOR, "```json"),
    _behind_separator,
    f"<｜tool▁call▁begin｜>function{SEPARATOR}{NAME}{FENCE}{ARGUMENTS}\n```<｜tool▁call▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    around=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    within=(SEPARATOR,),
    first="<｜tool▁calls▁begin｜>",
    last="<｜tool▁calls▁end｜>",
)
DEEPSEEK_V31 = replace(
    DEEPSEEK,
    known_by=(SEPARATOR,),
    call=f"<｜tool▁call▁begin｜>{NAME}{SEPARATOR}{ARGUMENTS}<｜tool▁call▁end｜>",
    between="",
)
MISTRAL_V11 = CallForm(
    ("[TOOL_CALLS]", "[ARGS]"),
    _behind_marks,
    f"[TOOL_CALLS]{NAME}[ARGS]{ARGUMENTS}",
    "[TOOL_CALLS]",
    within=("[ARGS]", "[CALL_ID]"),
    between="",
)
MISTRAL = CallForm(("[TOOL_CALLS]",), _list, JSON_CALL, "[TOOL_CALLS]", between=", ", first="[TOOL_CALLS] [", last="]")
GLM4 = CallForm(("<|observation|>",), _name_and_arguments, f"{NAME}\n{ARGUMENTS}", starts=(NAME,), several=False)
LLAMA3 = CallForm(
    ('"parameters"',), _objects, JSON_CALL.replace("arguments", "parameters"), starts=("{", PYTHON), between="; "
)
ERNIE = replace(HERMES, known_by=("<tool_call>", "<response>"), around=("<response>", "</response>"))
GLM4_5 = CallForm(
    ("<arg_key>",),
    _behind_keys,
    f"<tool_call>{NAME}\n{ARGUMENTS}</tool_call>",
    "<tool_call>",
    "</tool_call>",
    within=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    argument=f"<arg_key>{KEY}</arg_key>\n<arg_value>{VALUE}</arg_value>\n",
)
GLM4_7 = replace(
    GLM4_5,
    known_by=("<arg_key>", "{function-name}<arg_key>"),
    call=GLM4_5.call.replace("\n", ""),
    between="",
    argument=GLM4_5.argument.replace("\n", ""),
)
QWEN3_CODER = CallForm(
    ("<function=", "<parameter="),  # LLaMA-3.1's <function=NAME>JSON</function> is another
    _in_tags,
    f"<tool_call>\n<function={NAME}>\n{ARGUMENTS}</function>\n</tool_call>",
    "<tool_call>",
    "</tool_call>",
    argument=f"<parameter={KEY}>\n{VALUE}\n</parameter>\n",
    undeclared=("string",),
)
FORMS = (ERNIE, GLM4_7, GLM4_5, QWEN3_CODER, HERMES, DEEPSEEK, DEEPSEEK_V31, MISTRAL_V11, MISTRAL, GLM4, LLAMA3)


def find_form(source: str) -> CallForm | None:
    """Return the form of calls that a chat template writes; None: none that is known."""
    return next((form for form in FORMS if all(text in source for text in form.known_by)), None)


@dataclass(frozen=True)
class Reading:
    """The way answers to a request are read.

    Attributes:
        form: None: without calls.
        schemas: Of the arguments of each tool, by name.
        forced: An answer is a call of one of the tools.
        several: Or more than one.
        reasons: Whether an answer may begin with reasoning.
        opened: It does, behind a mark that the prompt ends with.
    """

    form: CallForm | None = None
    schemas: Mapping[str, dict] = field(default_factory=dict)
    forced: bool = False
    several: bool = True
    reasons: bool = False
    opened: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """Texts that an answer may have in it that are no part of what is said."""
        return (*((OPEN, CLOSE) if self.reasons else ()), *(self.form.marks if self.form else ()))


PLAIN = Reading()  # of answers whose text is what is said


@dataclass(frozen=True)
class Said:
    """Some text of an answer, or of its reasoning."""

    text: str
    reasoning: bool = False


def read_whole(reading: Reading, text: str) -> tuple[str, str, list[ToolCall]]:
    """Return what a whole answer says, its reasoning and its calls."""
    reader = AnswerReader(reading)
    parts = reader.put(text) + reader.rest()
    texts = [part for part in parts if isinstance(part, Said)]
    said, thought = ("".join(part.text for part in texts if part.reasoning is one) for one in (False, True))
    return said, thought, [part for part in parts if isinstance(part, ToolCall)]


@dataclass
class AnswerReader:
    """A reader of one answer."""

    reading: Reading
    found: list[Said | ToolCall] = field(default_factory=list)
    rest_of_text: str = ""  # that is not understood yet
    lines: str = ""  # line ends that are left out where a part ends
    begins: bool = False  # a part, before which line ends are left out
    calls: int = 0

    def __post_init__(self):
        self.state = self._reason if self.reading.opened else self._start
        self.begins = self.reading.opened
        starts = self.reading.form.starts if self.reading.form else ()
        names = [f"{name}\n" for name in self.reading.schemas] if NAME in starts else []
        self.starts = [*names, *(start for start in starts if start != NAME)]

    def put(self, text: str) -> list[Said | ToolCall]:
        """Return the parts that are certain now."""
        self.rest_of_text += text
        return self._read(ended=False)

    def rest(self) -> list[Said | ToolCall]:
        """Return what was kept back, at the end of an answer."""
        found = self._read(ended=True)
        if self.lines and not self.begins and self.state != self._reason:
            found.append(Said(self.lines))
        return found

    def _read(self, ended: bool) -> list[Said | ToolCall]:
        self.found = []
        while self.state(ended):
            pass
        return self.found

    # ---- states: each takes what it understands, and returns whether another one is to go on

    def _start(self, ended: bool) -> bool:
        text = self.rest_of_text.lstrip()
        starts = [*([OPEN] if self.reading.reasons and not self.begins else []), *self.starts]
        found = next((start for start in starts if text.startswith(start)), None)
        if found is None and not ended and any(start.startswith(text) for start in starts):
            return False
        if found == OPEN:
            self.rest_of_text = text.removeprefix(OPEN)
            self.begins = True
            self.state = self._reason
        else:
            self.state = self._call if found else self._say
        return True

    def _reason(self, ended: bool) -> bool:
        if not self._say_up_to([CLOSE], ended, reasoning=True):
            return False
        self.state = self._start if self.starts else self._say
        return True

    def _say(self, ended: bool) -> bool:
        form = self.reading.form
        found = self._say_up_to([form.begin, *form.around] if form else [], ended)
        if form and found == form.begin:
            self.state = self._call
        return bool(found)

    def _call(self, ended: bool) -> bool:
        form = self.reading.form
        assert form
        behind = form.end or form.begin
        place = self.rest_of_text.find(behind) if behind else -1
        if place < 0 and not ended:
            return False
        body = self.rest_of_text if place < 0 else self.rest_of_text[:place]
        end = form.end if place >= 0 else ""
        self.rest_of_text = self.rest_of_text[len(body) + len(end) :]
        try:
            calls = form.read(body)
            if form.argument:
                calls = [_typed(one, self.reading.schemas.get(one.name) or {}, form.undeclared) for one in calls]
            if not calls or (
                (form.starts or form.argument) and any(call.name not in self.reading.schemas for call in calls)
            ):
                raise ValueError
        except (ValueError, TypeError, RowError, RecursionError):  # TypeError: JSON of another kind
            self._add(Said(form.begin + body + end))
        else:
            calls = calls if self.reading.several else calls[: 1 - min(self.calls, 1)]
            self.found += calls
            self.calls += len(calls)
            self.lines, self.begins = "", True
        self.state = self._say
        return bool(self.rest_of_text)

    def _say_up_to(self, ends: list[str], ended: bool, reasoning: bool = False) -> str:
        """Say the text before the first of these, and return it; "" where there is none: then all that is certain."""
        text = self.rest_of_text
        ends = [end for end in ends if end]
        place, end = min(((text.find(end), end) for end in ends if end in text), default=(-1, ""))
        if not end:
            place = len(text) - (0 if ended else max((overlap(text, end) for end in ends), default=0))
        self._add(Said(text[:place], reasoning))
        self.rest_of_text = text[place + len(end) :]
        if end and end != (self.reading.form and self.reading.form.begin):
            self.lines, self.begins = "", True
        return end

    def _add(self, said: Said) -> None:
        """Add a text without line ends at the borders of a part, which templates write there."""
        text = self.lines + said.text
        text = text.lstrip("\n") if self.begins else text
        shown = text.rstrip("\n") if self.reading.marks else text
        self.lines = text[len(shown) :]
        if shown:
            self.begins = False
            self.found.append(Said(shown, said.reasoning))
