r"""The built-in rewards (--reward): how far a completion is right. Python's standard library alone, and no Paddle.

grade = grader("number", "")
grade({"completion": "so it is \\boxed{0.5}", "answer": "#### 1/2", "tokens": 9})    # 1.0

They run in a process of their own (launch/training/reward_worker.py).
"""

import ast
import json
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?|-?\.\d+")
CHOSEN = re.compile(r"(?:answer|choice|option)\W+(?:is\W+)?\(?([A-J])\b", re.IGNORECASE)
LETTER = re.compile(r"\b([A-J])\b")
LONGEST = 200  # characters of an expression that is evaluated
LARGEST_POWER = 64
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def grader(kind: str, value: str, template: str = "") -> Callable[[dict], float]:
    """Return the function that rewards a completion: from {"completion", "answer", "tokens"}.

    Args:
        kind: A name of launch/methods/reward_flags.py: BUILT_IN.
        value: Behind its colon.
        template: The chat template, which says how calls of tools are written.
    """
    match kind:
        case "number":
            return lambda one: _equal(value_of(one["completion"]), value_of(one["answer"]))
        case "choice":
            return lambda one: _equal(letter_of(one["completion"]), letter_of(one["answer"]))
        case "exact":
            return lambda one: _equal(one["completion"].strip(), one["answer"].strip())
        case "regex":
            pattern = re.compile(value, re.DOTALL)
            return lambda one: float(bool(pattern.search(one["completion"])))
        case "length":
            return lambda one: min(max(2 - one["tokens"] / int(value), 0.0), 1.0)
        case "json":
            schema = json.loads(Path(value).read_text(encoding="utf-8")) if value else {}
            return lambda one: float(_is_json(one["completion"], schema))
        case "tool":
            return lambda one: _equal(calls_of(one["completion"], template), calls_of(one["answer"], template))
    raise ValueError(kind)


def _equal(found: object, wanted: object) -> float:
    return float(found not in (None, "", []) and found == wanted)


def value_of(text: str) -> Fraction | str | None:
    r"""Return what an answer comes to: the value of the last \boxed{}, else the last number, behind #### where it is.

    What is boxed and no arithmetic is compared as text without spaces.
    """
    boxed = _boxed(text)
    if boxed is not None:
        plain = re.sub(r"\\text\{([^{}]*)\}|\\(?:left|right|,|;|!)|[\s$]|\\%", r"\1", boxed).rstrip(".")
        return evaluated(plain) if (evaluated(plain)) is not None else plain
    numbers = NUMBER.findall(text.rpartition("####")[2])
    return evaluated(numbers[-1].rstrip(",")) if numbers else None


def _boxed(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for place in range(start + len("\\boxed"), len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if not depth:
            return text[start + len("\\boxed{") : place]
    return None


def evaluated(text: str) -> Fraction | None:
    """Return the value of an arithmetic expression, exact; None where it is none."""
    text = re.sub(r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))", text)
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text).replace("^", "**").replace("\\cdot", "*").replace("\\times", "*")
    if len(text) > LONGEST:
        return None
    try:
        return _value(ast.parse(re.sub(r"(?<![\d.])0+(?=\d)", "", text), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=bool()):
            raise ValueError("no number")
        case ast.Constant(value=int() | float() as number):
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            power = _value(right)
            if power.denominator != 1 or abs(power) > LARGEST_POWER:
                raise ValueError("no whole power")
            return _value(left) ** int(power)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
            return OPERATORS[type(sign)](_value(left), _value(right))
    raise ValueError("no arithmetic")


def letter_of(text: str) -> str | None:
    """Return the letter that is chosen: in a box, behind the word answer, else the last one that stands alone."""
    boxed = _boxed(text)
    for pattern, where in ((LETTER, boxed or ""), (CHOSEN, text), (LETTER, text)):
        if found := pattern.findall(where):
            return found[-1].upper()
    return None


def calls_of(text: str, template: str) -> list[tuple[str, Any]]:
    """Return the calls in a text, in the template's form or as JSON: (name, arguments) of each."""
    from data_tools.dialogues.messages import read_call
    from launch.generation.answer_parts import Reading, find_form, read_whole

    try:
        found = json.loads(text)
        calls = [read_call(one) for one in (found if isinstance(found, list) else [found])]
    except Exception:  # no JSON of a call: the form that the model writes
        form = find_form(template)
        calls = read_whole(Reading(form), text)[2] if form else []
    return [(call.name, json.loads(call.arguments)) for call in calls]


# ---- JSON, and of JSON Schema what describes the shape of an answer

TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def _is_json(text: str, schema: dict) -> bool:
    try:
        return allows(schema, json.loads(text))
    except (ValueError, RecursionError):
        return False


def allows(schema: Any, value: Any) -> bool:
    """Return whether a schema allows a value, by type, enum, const, properties, required, items and bounds."""
    if isinstance(schema, bool):
        return schema
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    fine = not kinds or any(TYPES[kind](value) for kind in kinds)
    fine &= value in schema.get("enum", [value]) and value == schema.get("const", value)
    if isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties", True)
        fine &= set(schema.get("required", [])) <= set(value)
        fine &= all(allows(known.get(key, other), part) for key, part in value.items())
    if isinstance(value, list):
        fine &= schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        fine &= all(allows(schema.get("items", True), part) for part in value)
    if TYPES["number"](value):
        fine &= schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return fine
