"""What is known of one flag: its kind, default and allowed values, and how its arguments are read."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field
from typing import Any, Literal

# What PaddleNLP's parser takes for yes and no (paddlenlp/trainer/argparser.py, strtobool).
YES = ("yes", "true", "t", "y", "1")
NO = ("no", "false", "f", "n", "0")
# What a three-state switch such as --use_flash_attention takes.
CHOICES = ("auto", "on", "off", "required")
ALIASES = {"0": "off", "1": "on", "false": "off", "true": "on"}

# The value of a switch: False where it is off, so that `if flags.bf16` reads as it should.
SwitchValue = Literal["auto", "on", "required", False]


@dataclass(frozen=True)
class Flag:
    """One flag of a method.

    Attributes:
        kind: "bool", "switch" (one of CHOICES), "int", "float" or "str".
        default: Its value where it is not given.
        choices: The values allowed; empty: all.
        range: Bounds of a number, "least" and "most" inclusive, "above" and "below" exclusive. Every number has some.
        words: Those that a value of several words may hold; empty: the value is one.
        many: It takes several values.
        alone: What a switch means without a value; "": it needs one.
    """

    kind: str
    default: Any = None
    choices: tuple[str, ...] = ()
    range: Mapping[str, float] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    many: bool = False
    alone: str = ""

    def read(self, arguments: list[str]) -> Any:
        """Return the value. Raises ValueError or IndexError for arguments that cannot be read."""
        if self.kind == "bool":
            return not arguments or arguments[0].lower() in YES
        if self.kind == "switch":
            return switch(arguments[0] if arguments else self.alone)
        if self.range:
            numbers = [self.number(argument) for argument in arguments]
            return numbers if self.many else numbers[0]
        if self.choices and not set(arguments) <= set(self.choices):
            raise ValueError("not one of its choices")
        return arguments if self.many else " ".join(arguments)

    def number(self, argument: str) -> int | float:
        """Return the value of a numeric flag. Raises ValueError with the allowed values for other arguments."""
        try:
            value = int(argument) if self.kind == "int" else float(argument)
        except ValueError:
            value = math.nan
        bounds = self.range
        inside = (
            abs(value) < math.inf  # math.isfinite takes no integer beyond a float's range
            and bounds.get("least", value) <= value <= bounds.get("most", value)
            and ("above" not in bounds or bounds["above"] < value)
            and ("below" not in bounds or value < bounds["below"])
        )
        if not inside:
            raise ValueError(self.range_text)
        return value

    def expectation(self, argument: str) -> str | None:
        """Return the expected values, None where the argument is right."""
        if self.kind == "bool":
            return None if argument.lower() in (*YES, *NO) else "1 or 0 (true, false)"
        if self.kind == "switch":
            return None if argument.lower() in (*CHOICES, *ALIASES) else ", ".join(CHOICES)
        if self.range:
            try:
                self.number(argument)
            except ValueError as error:
                return str(error)
        choices = self.choices or self.words
        return ", ".join(choices) if choices and argument not in choices else None

    @property
    def range_text(self) -> str:
        """The values that a numeric flag takes, in words: "a number, at least 0 and below 1"."""
        sides = {"least": "at least", "above": "above", "most": "at most", "below": "below"}
        bounds = [f"{sides[side]} {bound:,}" for side, bound in self.range.items()]
        return f"{'a whole number' if self.kind == 'int' else 'a number'}, {' and '.join(bounds)}"

    def value(self, read: Any) -> Any:
        """Return what FlagValues shows of a value that was read: a text of several values, False of a switch."""
        if self.kind == "switch" and read == "off":
            return False
        return " ".join(map(str, read)) if isinstance(read, list) else read


def known(kind: str, default: Any = None, **properties: Any) -> Any:
    """Return a field of launch/config/flags.py. properties: of its Flag."""
    flag = Flag(kind, default, **properties)
    return field(default=flag.value(default), metadata={"flag": flag})


def default_of(argument: Field) -> Any:
    """Return the default of a field of an argument class; None of a required flag."""
    if argument.default_factory is not MISSING:
        return argument.default_factory()
    return None if argument.default is MISSING else argument.default


def switch(value: str) -> str:
    """Return `value` as one of auto, on, off, required; 0/false and 1/true mean off and on.

    Raises:
        ValueError: For others.
    """
    choice = ALIASES.get(value.lower(), value.lower())
    if choice not in CHOICES:
        raise ValueError(f"found {value!r}, allowed: {', '.join(CHOICES)} (or 0/1, false/true)")
    return choice
