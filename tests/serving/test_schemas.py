"""Schemas that are wrong: the request is at fault, and nothing of them is printed whole."""

import json
import math

import numpy as np
import pytest

from launch.serving.request import Finish, Options, Refusal, Row, TokenName

EOS = 256


class Failing:
    """A grammar that llguidance gives up."""

    def exclude(self, logits) -> bool:
        return False


@pytest.fixture(scope="module")
def grammars():
    pytest.importorskip("llguidance")
    from launch.serving.json_grammar import Grammars

    names = [*(TokenName(chr(byte), bytes([byte])) for byte in range(EOS)), TokenName("</s>", None)]
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
    "long": ({"type": "nonsense" * 20_000}, "Invalid type"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_schema_is_a_fault_of_the_request(grammars, name, capfd):
    schema, said = WRONG[name]
    with pytest.raises(Refusal) as refused:
        grammars.of_schema(json.dumps(schema))
    assert refused.value.reason.http == 400 and refused.value.parameter == "response_format"
    assert said in refused.value.message and len(refused.value.message) < 300
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("multiples", [(5, 10, 15, 1000), (0.01, 0.25, 0.5, 10), (10_000,)], ids=str)
def test_usual_multiples_are_answered(grammars, multiples):
    assert grammars.of_schema(json.dumps(integers(*multiples))).exclude(np.zeros(EOS + 1))


def test_a_property_may_have_the_name_of_the_options(grammars):
    grammar = grammars.of_schema(json.dumps({"type": "object", "properties": {"x-guidance": {"type": "string"}}}))
    logits = np.zeros(EOS + 1)
    assert grammar.exclude(logits) and [chr(byte) for byte in np.flatnonzero(np.isfinite(logits))] == ["{"]


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
    assert (row.done, events) == (True, [Finish.FAILED])
