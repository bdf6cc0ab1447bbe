"""Which tokens may come next in an answer that is to be JSON of a schema, or calls of tools, by llguidance.

grammars = Grammars(name, ids, eos, encode)
grammar = grammars.of_schema('{"type": "object"}')
grammar.exclude(logits)
grammar.take(token)
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper  # pyright: ignore[reportMissingImports]

from data_tools.formats.json_files import shown
from launch.generation.answer_parts import ARGUMENTS, CLOSE, KEY, NAME, OPEN, PLAIN, QUOTED, VALUE, Reading, types_of
from launch.serving.request import Reason, Refusal, TokenName

OPTIONS_KEY = "x-guidance"  # of a schema: llguidance prefers its values to ours
# The least common multiple of all multipleOf of a schema. llguidance walks through that many remainders, eight seconds
# for a million of them; all else that it computes has limits of its own, some hundredths of a second a token.
MOST_REMAINDERS = 10_000
# What an argument that is no JSON cannot be held to: keys of a schema of all arguments, and of a text.
ARGUMENTS_AS_TEXT = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "const", "enum", "minProperties")
TEXTS = ("pattern", "format", "minLength", "maxLength", "allOf", "not")
# As json.dumps writes it. With any space allowed, a model can go on with spaces for ever.
WRITTEN: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Vocabulary:
    """The attributes that llguidance reads of a tokenizer."""

    bos_token_id = None

    def __init__(self, names: list[TokenName], eos: int, encode: Callable[[str], list[int]]):
        self.eos_token_id = eos
        self.tokens = [name.text.encode() if name.bytes is None else name.bytes for name in names]
        self.special_token_ids = [token for token, name in enumerate(names) if name.bytes is None]
        self.encode = encode

    def __call__(self, text: str | bytes) -> list[int]:
        """Return the ids of a text."""
        return self.encode(text if isinstance(text, str) else text.decode())


class Grammars:
    """The grammars of one tokenizer.

    Attributes:
        name: Of an id.
        ids: Number of ids that can be chosen.
        encode: A text's ids, without special tokens.
    """

    def __init__(self, name: Callable[[int], TokenName], ids: int, eos: int, encode: Callable[[str], list[int]]):
        vocabulary = Vocabulary([name(token) for token in range(ids)], eos, encode)
        self.special = {vocabulary.tokens[token].decode(): token for token in vocabulary.special_token_ids}
        self.tokenizer = LLTokenizer(TokenizerWrapper(vocabulary), n_vocab=ids)

    def of_schema(self, schema: str, reading: Reading = PLAIN) -> "Grammar":
        """Return the grammar of an answer in JSON. reading: of an answer that may begin with reasoning.

        Raises:
            Refusal: For a schema that is wrong, or has a part that llguidance does not know.
        """
        plain = self._of_json(json.loads(schema), "response_format")
        if not reading.reasons:
            return plain
        return self._of_lark(reading, "json", [_rule("json", json.loads(schema))], "response_format")

    def of_calls(self, reading: Reading) -> "Grammar":
        """Return the grammar of an answer that calls tools, after reasoning if it is to have some.

        Raises:
            Refusal: As of_schema.
        """
        form = reading.form
        assert form
        rules = []
        for number, (name, schema) in enumerate(reading.schemas.items()):
            before, _, behind = form.call.partition(ARGUMENTS)
            before = before.replace(QUOTED, json.dumps(name, ensure_ascii=False)).replace(NAME, name)
            rules.append(f"call{number}: {self._literal(before)} arguments{number} {self._literal(behind)}")
            self._of_json(schema, "tools")  # says what is wrong
            schema = _of_object(schema)
            arguments = f"arguments{number}"
            rules += self._arguments(arguments, schema, form.argument) if form.argument else [_rule(arguments, schema)]
        rules.append(f"call: {' | '.join(f'call{number}' for number in range(len(reading.schemas)))}")
        more = f"({self._literal(form.between)} call)*" if reading.several and form.several else ""
        calls = f"{self._literal(form.first)} call {more} {self._literal(form.last)}"
        return self._of_lark(reading, calls, rules, "tools")

    def _arguments(self, rule: str, schema: dict, form: str) -> list[str]:
        """Return the rules of arguments that are no JSON: one behind the other, as the schema orders them.

        Raises:
            Refusal: For a schema with parts that nothing can be held to in that form.
        """
        _require_plain(schema, ARGUMENTS_AS_TEXT)
        declared, required = schema.get("properties") or {}, schema.get("required") or []
        shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        (before, behind), rules, names = form.split(VALUE), [], []
        for number, key in enumerate(dict.fromkeys([*declared, *required])):
            one, argument = declared.get(key, {}), f"{rule}_{number}"
            names.append(argument if key in required else f"{argument}?")
            value, end = f"{argument}_value", self._literal(behind)
            if not isinstance(one, dict) or "string" not in types_of(one):
                rules.append(_rule(value, shared | one if isinstance(one, dict) else {}))
            elif texts := [one["const"]] if "const" in one else one.get("enum"):
                texts = [text if isinstance(text, str) else json.dumps(text) for text in texts]
                rules.append(f"{value}: {' | '.join(self._literal(text) or chr(34) * 2 for text in texts)}")
            else:
                _require_plain(one, TEXTS)
                rules += self._text_up_to(value, behind)
                end = ""
            rules.append(f"{argument}: {self._literal(before.replace(KEY, key))} {value} {end}")
        return [*rules, f"{rule}: {' '.join(names) or chr(34) * 2}"]

    def _text_up_to(self, rule: str, end: str) -> list[str]:
        """Return the rules of any text and the end behind it."""
        anything = r"/(.|\n)*/"
        if any(token in end for token in self.special):
            return [f"{rule}_text: {anything}", f"{rule}: {rule}_text {self._literal(end)}"]
        return [f"{rule}[suffix={json.dumps(end)}]: {anything}"]

    def _of_json(self, schema: Any, parameter: str) -> "Grammar":
        _require_safe(schema, parameter)
        for pattern in {one for one in _patterns(schema) if "{" in one}:
            self._require_few_states(pattern, parameter)
        try:
            return self._grammar(LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=WRITTEN), parameter)
        except ValueError as error:  # too deep, NaN, half a surrogate pair
            raise _refusal(str(error), parameter) from None

    def _require_few_states(self, pattern: str, parameter: str) -> None:
        """Raise Refusal for a pattern that llguidance gives up once a text begins: one of repeated repetitions."""
        form = json.dumps({"type": "string", "pattern": pattern})
        matcher = LLMatcher(self.tokenizer, LLMatcher.grammar_from_json_schema(form, overrides=WRITTEN), log_level=0)
        if not matcher.is_error():  # a wrong pattern is reported with its schema
            first = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
            matcher.consume_token(int(np.flatnonzero(np.unpackbits(first, bitorder="little"))[0]))
            if matcher.is_error():
                raise _refusal(f"pattern: found {shown(pattern)}, expected one of fewer repetitions", parameter)

    def _of_lark(self, reading: Reading, start: str, rules: list[str], parameter: str) -> "Grammar":
        """Return the grammar of rules in Lark's form, as llguidance has it, after reasoning."""
        if reading.reasons:
            start = f"thought{'' if reading.opened else '?'} {start}"
            rules += [f"thought: {'' if reading.opened else self._literal(OPEN)} thinking /\\n*/"]
            rules += self._text_up_to("thinking", CLOSE)
        return self._grammar(LLMatcher.grammar_from_lark("\n".join([f"start: {start}", *rules])), parameter)

    def _literal(self, text: str) -> str:
        """Return an expression of this text. Special tokens are no text of any other token."""
        pieces = re.split(f"({'|'.join(map(re.escape, self.special))})", text)
        return " ".join(
            f"<[{self.special[piece]}]>" if piece in self.special else json.dumps(piece, ensure_ascii=False)
            for piece in pieces
            if piece
        )

    def _grammar(self, grammar: str, parameter: str) -> "Grammar":
        matcher = LLMatcher(self.tokenizer, grammar)
        first = matcher.deep_copy()
        if not matcher.is_error():
            first.compute_bitmask()  # a schema that leads to itself alone is found out here
        if first.is_error():
            raise _refusal(_first_line(first), parameter)
        return Grammar(matcher)


def _rule(name: str, schema: Any) -> str:
    return f"{name}: %json {json.dumps({OPTIONS_KEY: WRITTEN} | schema)}"


def _of_object(schema: dict) -> dict:
    """Return the schema of arguments, which are an object also where it leaves that open. Raises Refusal."""
    kinds = schema.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise _refusal(f"parameters of type {shown(kinds)}, expected object", "tools")
    return schema | {"type": "object"}


def _require_plain(schema: dict, keys: tuple[str, ...]) -> None:
    if found := [key for key in keys if key in schema]:
        raise _refusal(
            f"parameters with {', '.join(found)}, which calls of this model's form cannot be held to", "tools"
        )


def _require_safe(schema: Any, parameter: str) -> None:
    if OPTIONS_KEY in schema:
        raise _refusal(f"{OPTIONS_KEY}: found, expected a schema without options of the server", parameter)
    remainders = 1
    for multiple in _multiples(schema):
        if (remainders := math.lcm(remainders, multiple)) > MOST_REMAINDERS:
            found = f"found {shown(remainders, 20)} as a least common multiple in the schema"
            found = f"multipleOf: {found}, expected {MOST_REMAINDERS} at most (decimal points do not count)"
            raise _refusal(found, parameter)


def _multiples(schema: Any) -> Iterator[int]:
    """Yield each multipleOf, wherever in the schema, as an integer without its decimal point: 25 for 0.25."""
    for part in _objects(schema):
        value = part.get("multipleOf")
        if type(value) is int or isinstance(value, float) and math.isfinite(value):
            _, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
            yield int("".join(map(str, digits))) * 10 ** max(0, int(exponent)) or 1  # 0 is refused by llguidance


def _patterns(schema: Any) -> Iterator[str]:
    for part in _objects(schema):
        named = part.get("patternProperties")
        yield from (
            one for one in (part.get("pattern"), *(named if isinstance(named, dict) else ())) if isinstance(one, str)
        )


def _objects(schema: Any) -> Iterator[dict]:
    """Yield each object, wherever in the schema."""
    parts = [schema]
    while parts:
        part = parts.pop()
        parts += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        if isinstance(part, dict):
            yield part


def _refusal(found: str, parameter: str) -> Refusal:
    return Refusal(Reason.INVALID, f"{parameter}: {found}", parameter)


def _first_line(matcher: LLMatcher) -> str:
    """Return what is wrong, without the state: that has the whole schema, and the answer so far."""
    return shown(matcher.get_error().partition("\n")[0], 200)


class Grammar:
    """The grammar of one answer."""

    def __init__(self, matcher: LLMatcher):
        self.matcher = matcher

    def copy(self) -> "Grammar":
        """Return a copy that continues by itself."""
        return Grammar(self.matcher.deep_copy())

    def exclude(self, logits: np.ndarray) -> bool:
        """Make the logits of ids that cannot come next infinitely small; the end can come where the JSON is complete.

        Returns False, and prints why, where llguidance fails.

        Args:
            logits: [ids].
        """
        mask = self.matcher.compute_bitmask()
        if self.matcher.is_error():
            print(f"an answer in JSON fails: llguidance: {_first_line(self.matcher)}", file=sys.stderr, flush=True)
            return False
        bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), count=len(logits), bitorder="little")
        logits[bits == 0] = -np.inf
        return True

    def take(self, token: int) -> None:
        """Take the chosen id."""
        self.matcher.consume_token(token)
