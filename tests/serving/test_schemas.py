"""Grammars of schemas and of calls. Wrong schemas: the request is at fault, and nothing of them is printed whole."""

import json
import math
import re

import numpy as np
import pytest

from launch.generation.answer_parts import FORMS, AnswerReader, Reading, Said
from launch.serving.answer import FAULTS
from launch.serving.request import Finish, Options, Refusal, Row, TokenName
from tests.generation.calls import written_call

NEEDS_LLGUIDANCE = pytest.mark.long  # which make test-long installs
EOS = 256
SPECIAL = ("</s>", "[TOOL_CALLS]", "<｜tool▁sep｜>")


class Failing:
    """A grammar that llguidance gives up."""

    def exclude(self, logits) -> bool:
        return False


@pytest.fixture(scope="module")
def grammars():
    pytest.importorskip("llguidance")
    from launch.serving.json_grammar import Grammars

    names = [*(TokenName(chr(byte), bytes([byte])) for byte in range(EOS)), *(TokenName(one, None) for one in SPECIAL)]
    return Grammars(names.__getitem__, len(names), EOS, lambda text: list(text.encode()))


def nested(depth: int) -> dict:
    return {"type": "object", "properties": {"a": nested(depth - 1)}} if depth else {}


def integers(*multiples) -> dict:
    """Each takes llguidance seconds or minutes, for which nothing can stop it."""
    return {"type": "array", "items": {"anyOf": [{"type": "integer", "multipleOf": one} for one in multiples]}}


WRONG = {
    "many remainders": (integers(999_983), "multipleOf: found 999983 as a least common multiple in the schema"),
    "many remainders of two": (integers(997, 991), "multipleOf: found 988027 as a least"),
    "many remainders of a decimal": (integers(0.999983), "multipleOf: found 999983 as a least"),
    "remainders without end": (
        integers(*(10**4000 + one for one in range(40))),
        "multipleOf: found 10000000000000000000",
    ),
    "no remainder": (integers(0), "invalid multiple of"),
    "no number of remainders": (integers(True), "Expected f64"),
    "nested": (nested(200), "recursion limit"),
    "NaN": ({"type": "integer", "minimum": math.nan}, "expected value"),
    "infinity": ({"type": "number", "maximum": math.inf}, "expected value"),
    "half a character": ({"enum": ["\ud800"]}, "hex escape"),
    "itself": ({"$ref": "#"}, "NoExtensionBias"),
    "a circle": ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "NoExtensionBias"),
    "options of the server": ({"x-guidance": {"whitespace_flexible": True}, "type": "object"}, "x-guidance: found"),
    "repeated repetitions": (
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a{1000}){1000}$"}}},
        "pattern: found ^(a{1000}){1000}$, expected one of fewer repetitions",
    ),
    "long": ({"type": "nonsense" * 20_000}, "Invalid type"),
}


@NEEDS_LLGUIDANCE
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_schema_is_a_fault_of_the_request(grammars, name, capfd):
    schema, said = WRONG[name]
    calls = Reading(FORMS[0], {"f": schema}, forced=True)
    for parameter, make in (
        ("response_format", lambda: grammars.of_schema(json.dumps(schema))),
        ("tools", lambda: grammars.of_calls(calls)),
    ):
        with pytest.raises(Refusal) as refused:
            make()
        assert refused.value.reason.http == 400 and refused.value.parameter == parameter
        assert said in refused.value.message and len(refused.value.message) < 300
        assert capfd.readouterr() == ("", "")


@NEEDS_LLGUIDANCE
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "integer"}, "tools: parameters of type integer, expected object"),
        ({"type": ["array", "null"]}, "tools: parameters of type ['array', 'null'], expected object"),
        ({"const": 1}, "Unsatisfiable schema"),
        ({"anyOf": [{"type": "string"}]}, "Unsatisfiable schema"),
    ],
)
def test_arguments_that_could_be_no_object_are_refused(grammars, schema, said):
    with pytest.raises(Refusal, match=re.escape(said)) as refused:
        grammars.of_calls(Reading(FORMS[0], {"f": schema}, forced=True))
    assert refused.value.reason.http == 400


def accepts(grammar, text: str) -> bool:
    """Whether it is whole; special tokens are single ids."""
    grammar = grammar.copy()
    ids = []
    for piece in re.split(f"({'|'.join(map(re.escape, SPECIAL))})", text):
        ids += [EOS + SPECIAL.index(piece)] if piece in SPECIAL else piece.encode()
    return all(map(grammar.matcher.consume_token, ids)) and grammar.matcher.is_accepting()


@NEEDS_LLGUIDANCE
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.known_by[-1])
def test_calls_are_held_to_their_schemas_and_read_back(grammars, form):
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    schemas = {"f": number | {"additionalProperties": False}, "g": {"type": "object", "additionalProperties": False}}

    def answer(*calls: tuple[str, dict]) -> str:
        return form.first + form.between.join(written_call(form, *call) for call in calls) + form.last

    one, two, wrong = answer(("f", {"n": 5})), answer(("f", {"n": 5}), ("g", {})), answer(("f", {"n": "5."}))
    for thought, ways in (
        ("", {"reasons": False}),
        ("", {"reasons": True}),
        ("<think>\na\n</think>\n\n", {"reasons": True}),
        ("a</think>", {"reasons": True, "opened": True}),
    ):
        reading = Reading(form, schemas, forced=True, **ways)
        grammar = grammars.of_calls(reading)
        assert accepts(grammar, thought + one) and not accepts(grammar, thought + wrong)
        assert not accepts(grammar, thought + answer(("h", {}))) and not accepts(grammar, "a")
        assert accepts(grammar, thought + two) == form.several
        reader = AnswerReader(reading)
        found = [part for part in reader.put(thought + one) + reader.rest() if not isinstance(part, Said)]
        assert [(call.name, call.arguments) for call in found] == [("f", '{"n": 5}')]
    assert not accepts(grammars.of_calls(Reading(form, schemas, forced=True, several=False)), two)
    opened = grammars.of_schema(json.dumps(number), Reading(reasons=True, opened=True))
    assert accepts(opened, 'hm</think>\n{"n": 5}') and not accepts(opened, '{"n": 5}')


@NEEDS_LLGUIDANCE
@pytest.mark.parametrize("form", [form for form in FORMS if form.argument], ids=lambda form: form.known_by[-1])
def test_arguments_that_are_no_json_are_held_to_their_schemas(grammars, form):
    properties = {
        "text": {"type": "string"},
        "color": {"enum": ["red", "dark blue"]},
        "shape": {"$ref": "#/$defs/shape"},
        "more": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
    }
    schema = {"type": "object", "$defs": {"shape": {"enum": [3, 4]}}, "properties": properties}
    reading = Reading(form, {"f": schema | {"required": ["text", "undeclared"]}}, forced=True)
    grammar, given = grammars.of_calls(reading), {"text": 'a\n<b> "c"\n', "undeclared": 7}
    for arguments, allowed in (
        (given, True),
        ({"text": "", "color": "dark blue", "shape": 4, "more": {"a": "</b>"}, "undeclared": 7}, True),
        ({"text": "a"}, False),
        ({"undeclared": 7}, False),
        ({"text": "a", "color": "green", "undeclared": 7}, False),
        ({"text": "a", "shape": 5, "undeclared": 7}, False),
        ({"text": "a", "more": {"b": 1}, "undeclared": 7}, False),
        ({"text": "a", "other": 1, "undeclared": 7}, False),
    ):
        text = written_call(form, "f", arguments)
        assert accepts(grammar, text) == allowed, text
        if allowed:
            [call] = AnswerReader(reading).put(text)
            assert json.loads(call.arguments) == arguments | ({"undeclared": "7"} if form.undeclared else {})
    for wrong, said in (
        ({"properties": {"a": {"type": "string", "pattern": "^a$"}}}, "parameters with pattern, which calls of"),
        ({"properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]}, "parameters with anyOf, which"),
    ):
        with pytest.raises(Refusal, match=said) as refused:
            grammars.of_calls(Reading(form, {"f": {"type": "object"} | wrong}, forced=True))
        assert refused.value.reason.http == 400


@NEEDS_LLGUIDANCE
@pytest.mark.parametrize("multiples", [(5, 10, 15, 1000), (0.01, 0.25, 0.5, 10), (10_000,)], ids=str)
def test_usual_multiples_are_answered(grammars, multiples):
    assert grammars.of_schema(json.dumps(integers(*multiples))).exclude(np.zeros(EOS + 1))


@NEEDS_LLGUIDANCE
def test_a_property_may_have_the_name_of_the_options(grammars):
    grammar = grammars.of_schema(json.dumps({"type": "object", "properties": {"x-guidance": {"type": "string"}}}))
    logits = np.zeros(EOS + 1)
    assert grammar.exclude(logits) and [chr(byte) for byte in np.flatnonzero(np.isfinite(logits))] == ["{"]


@NEEDS_LLGUIDANCE
def test_what_fails_in_an_answer_is_one_line(grammars, capfd):
    grammar = grammars.of_schema(json.dumps({"type": "object", "description": "x" * 160_000}))
    grammar.take(ord("!"))  # which the schema does not allow
    assert not grammar.exclude(np.zeros(EOS + 1))
    printed = capfd.readouterr().err
    assert "an answer in JSON fails: llguidance: " in printed and "xxx" not in printed and len(printed) < 500


def test_a_row_whose_grammar_fails_ends_alone():
    events = []
    row = Row(("m",), [1], Options(json_schema="{}"), 9, 0, math.inf, events.append, grammar=Failing())
    row.choose(np.zeros(4))
    assert (row.done, events) == (True, [Finish.BEYOND])
    assert FAULTS[Finish.BEYOND][0].http == 400  # its client can mend it
