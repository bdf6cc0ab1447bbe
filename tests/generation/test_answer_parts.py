"""Reasoning, text and calls are found in an answer as each model writes them, wherever its text is cut.

Source of the texts: what the models' published templates write for the same calls, and the tests of vLLM's parsers.
"""

import json
import random

import pytest

from data_tools.dialogues.messages import ToolCall
from launch.generation.answer_parts import FORMS, AnswerReader, Reading, Said, find_form
from tests.generation.calls import written_call

A = ("tide_at", '{"port": "Orrin 港", "hour": 14}')
B = ("book_berth", '{"length_m": 9.5, "note": "a </b> \\"c\\" {"}')
SCHEMAS = {
    "tide_at": {"properties": {"hour": {"type": "integer"}}},
    "book_berth": {"properties": {"length_m": {"anyOf": [{"type": "number"}, {"type": "null"}]}}},
}
# What a template has in it -> an answer of one call, and of two; %s: arguments.
ANSWERS = {
    "<tool_call>": (
        '<tool_call>\n{"name": "tide_at", "arguments": %s}\n</tool_call>',
        '<tool_call>\n{"name": "tide_at", "arguments": %s}\n</tool_call>\n'
        '<tool_call>\n{"name": "book_berth", "arguments": %s}\n</tool_call>',
    ),
    "<tool_call><response>": (
        '<tool_call>\n{"name": "tide_at", "arguments": %s}\n</tool_call>\n',
        '<tool_call>\n{"name": "tide_at", "arguments": %s}\n</tool_call>\n'
        '<tool_call>\n{"name": "book_berth", "arguments": %s}\n</tool_call>\n',
    ),
    "<｜tool▁sep｜>```json": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>tide_at\n```json\n%s\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>tide_at\n```json\n%s\n```<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>book_berth\n```json\n%s\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "<｜tool▁sep｜>": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tide_at<｜tool▁sep｜>%s<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tide_at<｜tool▁sep｜>%s<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>book_berth<｜tool▁sep｜>%s<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "[TOOL_CALLS][ARGS]": (
        "[TOOL_CALLS]tide_at[CALL_ID]a1b2c3d4e[ARGS]%s",
        "[TOOL_CALLS]tide_at[ARGS]%s[TOOL_CALLS]book_berth[ARGS]%s",
    ),
    "[TOOL_CALLS]": (
        '[TOOL_CALLS] [{"name": "tide_at", "arguments": %s}]',
        '[TOOL_CALLS] [{"name": "tide_at", "arguments": %s, "id": "123456789"}, '
        '{"name": "book_berth", "arguments": %s}]',
    ),
    "<|observation|>": ("\ntide_at\n%s", None),
    "<arg_key>": (
        "<tool_call>tide_at\n<arg_key>port</arg_key>\n<arg_value>Orrin 港</arg_value>\n<arg_key>hour</arg_key>\n"
        "<arg_value>14</arg_value>\n</tool_call>",
        "<tool_call>tide_at\n<arg_key>port</arg_key>\n<arg_value>Orrin 港</arg_value>\n<arg_key>hour</arg_key>\n"
        "<arg_value>14</arg_value>\n</tool_call>\n<tool_call>book_berth\n<arg_key>length_m</arg_key>\n"
        '<arg_value>9.5</arg_value>\n<arg_key>note</arg_key>\n<arg_value>a </b> "c" {</arg_value>\n</tool_call>',
    ),
    "{function-name}<arg_key>": (
        "<tool_call>tide_at<arg_key>port</arg_key><arg_value>Orrin 港</arg_value><arg_key>hour</arg_key>"
        "<arg_value>14</arg_value></tool_call>",
        "<tool_call>tide_at<arg_key>port</arg_key><arg_value>Orrin 港</arg_value><arg_key>hour</arg_key>"
        "<arg_value>14</arg_value></tool_call><tool_call>book_berth<arg_key>length_m</arg_key>"
        '<arg_value>9.5</arg_value><arg_key>note</arg_key><arg_value>a </b> "c" {</arg_value></tool_call>',
    ),
    "<tool_call><function=<parameter=": (
        "<tool_call>\n<function=tide_at>\n<parameter=port>\nOrrin 港\n</parameter>\n<parameter=hour>\n14\n"
        "</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=tide_at>\n<parameter=port>\nOrrin 港\n</parameter>\n<parameter=hour>\n14\n"
        "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=book_berth>\n<parameter=length_m>\n9.5\n"
        '</parameter>\n<parameter=note>\na </b> "c" {\n</parameter>\n</function>\n</tool_call>',
    ),
    '"parameters"': (
        '{"name": "tide_at", "parameters": %s}',
        '<|python_tag|>{"name": "tide_at", "parameters": %s}; {"name": "book_berth", "parameters": %s}',
    ),
}
# Answers that look like calls and are none.
BROKEN = (
    "<tool_call>\n{no json}\n</tool_call>",
    "<tool_call>5",
    "[TOOL_CALLS] 7",
    "[TOOL_CALLS]tide_at[ARGS][1]",
    '{"a": 1',
)
BROKEN += (
    "<｜tool▁call▁begin｜>a<｜tool▁call▁end｜>",
    "tide_at\n[]",
    "<tool_call>tide_at\n<arg_key>port</arg_key>\nOrrin</tool_call>",
    "<tool_call><arg_key>port</arg_key><arg_value>Orrin</arg_value></tool_call>",
    "<tool_call>\n<function=tide_at>\nOrrin\n</function>\n</tool_call>",
    '{"name": "unknown", "parameters": {}}',
    '<tool_call>\n{"name": "tide_at", "arguments": {"port": 41e999}}\n</tool_call>',
    '[TOOL_CALLS][{"name": "tide_at", "arguments": {"port": NaN}}]',
    "a <tool_ca",
)


def parts(reading: Reading, pieces: list[str]) -> tuple[str, str, list[tuple[str, str]]]:
    """(reasoning, what is said, calls)"""
    reader = AnswerReader(reading)
    found = [part for piece in pieces for part in reader.put(piece)] + reader.rest()
    said = [part for part in found if isinstance(part, Said)]
    calls = [(part.name, part.arguments) for part in found if isinstance(part, ToolCall)]
    return (
        "".join(one.text for one in said if one.reasoning),
        "".join(one.text for one in said if not one.reasoning),
        calls,
    )


def reading_of(marks: str, **more) -> Reading:
    return Reading(find_form(marks), SCHEMAS, **more)


def check(reading: Reading, text: str, expected: tuple) -> None:
    """Whole, by characters, and cut at random."""
    assert parts(reading, [text]) == parts(reading, list(text)) == expected, text
    draw = random.Random(0)
    for _ in range(20):
        places = sorted(draw.sample(range(len(text) + 1), min(4, len(text))))
        cuts = [text[start:end] for start, end in zip([0, *places], [*places, None], strict=True)]
        assert parts(reading, cuts) == expected, cuts


@pytest.mark.parametrize("marks", ANSWERS)
def test_calls_are_read_as_each_model_writes_them(marks):
    reading = reading_of(marks)
    one, two = (text and text.replace("%s", A[1], 1).replace("%s", B[1]) for text in ANSWERS[marks])
    check(reading, one, ("", "", [A]))
    if two:
        check(reading, two, ("", "", [A, B]))
        check(reading_of(marks, several=False), two, ("", "", [A]))
    if not reading.form.starts:
        check(reading, f"I look.\n\n{one}\n", ("", "I look.", [A]))
    check(reading_of(marks, reasons=True), f"<think>\nhm\n</think>\n\n{one}", ("hm", "", [A]))
    check(reading_of(marks, reasons=True, opened=True), f"hm\nhm</think>{one}", ("hm\nhm", "", [A]))
    for text in ("", "\n plain \n", "a < b", '["tide_at"]', "[TOOL", "tide_at", "two\n\nlines\n"):
        check(reading, text, ("", text, []))
    for text in BROKEN:
        assert parts(reading, [text]) == parts(reading, list(text)) == ("", text, [])


@pytest.mark.parametrize("marks", ANSWERS)
def test_a_call_whole_is_what_the_form_reads(marks):
    """As a grammar writes it."""
    form = find_form(marks)
    texts = [written_call(form, name, json.loads(arguments)) for name, arguments in (A, B)]
    assert parts(reading_of(marks), [form.first + texts[0] + form.last]) == ("", "", [A])
    if form.several:
        assert parts(reading_of(marks), [form.first + form.between.join(texts) + form.last]) == ("", "", [A, B])


def test_reasoning_is_told_from_what_is_said():
    reading = Reading(reasons=True)
    check(reading, "<think>\n30 / 12\n\nis it\n</think>\n\nTwo.\n", ("30 / 12\n\nis it", "Two.\n", []))
    check(reading, "\n<think></think>Left.", ("", "Left.", []))
    check(reading, "Left. <think>No", ("", "Left. <think>No", []))
    check(reading, "<thin", ("", "<thin", []))
    check(reading, "<think>cut", ("cut", "", []))
    check(Reading(reasons=True, opened=True), "\nso\n</think>\n\n", ("so", "", []))
    check(Reading(find_form('"parameters"'), reasons=True), "<think>a</think>\n<think>b", ("a", "<think>b", []))
    response = Reading(find_form("<tool_call><response>"), reasons=True, opened=True)
    check(response, "\nab\n</think>\n\n<response>\nc\nd\n</response>\n", ("ab", "c\nd", []))


def test_templates_of_unknown_forms_have_none():
    assert {*map(find_form, ANSWERS)} == {*FORMS}
    assert find_form("{{ messages }}") is None and find_form("<function={{ name }}>{{ arguments }}") is None


TYPED = {
    "text": {"type": "string"},
    "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "whole": {"type": ["integer", "null"]},
    "number": {"type": "number"},
    "yes": {"type": "boolean"},
    "list": {"type": "array"},
    "color": {"enum": ["1", "2"]},
    "free": {},
}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "5", "5"),
        ("text", '"a"', '"a"'),
        ("text", "", ""),
        ("text", "two\n\nlines", "two\n\nlines"),
        ("either", "5", "5"),
        ("either", "None", None),
        ("whole", "5", 5),
        ("whole", "null", None),
        ("whole", "5.5", "5.5"),
        ("whole", "True", "True"),
        ("number", "5", 5),
        ("number", "NaN", "NaN"),
        ("number", "-41e999", "-41e999"),
        ("number", "9" * 5000, "9" * 5000),
        ("yes", "False", False),
        ("yes", "true", True),
        ("list", '[{"a": "港"}]', [{"a": "港"}]),
        ("list", "[1", "[1"),
        ("color", "1", "1"),
        ("free", "5", 5),
        ("free", "abc", "abc"),
    ],
)
def test_texts_become_what_the_schema_of_an_argument_says(key, text, value):
    """Qwen3-Coder's template writes Python's words, GLM's JSON; both write a text as it is."""
    for marks in ("<tool_call><function=<parameter=", "<arg_key>"):
        form = find_form(marks)
        argument = form.argument.replace("KEY", key).replace("VALUE", text)
        call = form.call.replace("NAME", "f").replace("ARGUMENTS", argument)
        assert parts(Reading(form, {"f": {"properties": TYPED}}), [call]) == (
            "",
            "",
            [("f", json.dumps({key: value}, ensure_ascii=False))],
        )
