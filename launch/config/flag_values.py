"""The words of a command line as flags, the checked-in schema (flags.json), and what the words mean by it."""

import json
import math
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from launch.errors import UserError
from launch.methods.registry import METHODS, method_of

SCHEMA = Path(__file__).resolve().parent / "flags.json"

# The words that PaddleNLP's parser takes for yes and no (paddlenlp/trainer/argparser.py, strtobool).
YES = ("yes", "true", "t", "y", "1")
NO = ("no", "false", "f", "n", "0")
# What a three-state switch such as --use_flash_attention takes.
CHOICES = ("auto", "on", "off", "required")
ALIASES = {"0": "off", "1": "on", "false": "off", "true": "on"}

LOWER_IS_BETTER = ("loss", "perplexity", "rewards_rejected", "kl")

Flags = dict[str, list[str]]  # name without dashes -> its words


@lru_cache
def _schemas() -> dict:
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def load_schema(script: str) -> dict:
    """Return {flag: {"type", "default", ...}} of a method, by name or script (launch/training/flag_schema.py)."""
    return _schemas()[method_of(script).name]


@lru_cache
def all_flags() -> dict:
    """Return the same of all methods together."""
    return {name: known for method in METHODS for name, known in _schemas()[method.name].items()}


def parse_flags(words: list[str]) -> Flags:
    """Return the flags of `--name value value`, `--name=value` or `--name`; a later one wins.

    Raises:
        UserError: For a word of no flag.
    """
    flags: Flags = {}
    name = None
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            flags.pop(name, None)
            flags[name] = [value] if equals else []
        elif name is None:
            raise UserError(f"{word!r} is not a flag: expected --name value.")
        else:
            flags[name].append(word)
    return flags


def answered(later: Flags) -> set[str]:
    """Return earlier flags of precision where a later one is given: --precision excludes --bf16 and --fp16."""
    former = {"bf16", "fp16"}
    return (former if "precision" in later else {"precision"} if former & later.keys() else set()) - later.keys()


def overridden(flags: Flags, later: Flags) -> Flags:
    """Return the flags with later ones in their place."""
    gone = answered(later)
    return {name: words for name, words in flags.items() if name not in gone} | later


def flag_lines(flags: Flags) -> list[list[str]]:
    """Return [["--name", "value"], ...]; --name= of an empty word."""
    return [[f"--{name}="] if words == [""] else [f"--{name}", *words] for name, words in flags.items()]


def flag_arguments(flags: Flags) -> list[str]:
    """Return ["--name", "value", ...], the arguments of a program."""
    return [word for line in flag_lines(flags) for word in line]


def split_words(flag: str, value: str) -> list[str]:
    """Return the words of a flag that holds several.

    Upstream cuts its *_parallel_config at commas, if there is one, else at spaces (paddlenlp/trainer/trainer_utils.py,
    split_parallel_config); the others at spaces.
    """
    if flag.endswith("_parallel_config") and "," in value:
        return value.split(",")
    return value.split()


class FlagValues:
    """Values of a method's flags as attributes: explicit ones, else the defaults. Read-only; RunConfig makes it.

    A flag that only another method has is None here; a name that none has raises AttributeError. A word that cannot be
    read, or a number out of its range, counts as missing: the check of the flags reports it. A switch that is off is
    False, else it is its word.
    """

    __slots__ = ("_given", "_known", "_stated")
    _given: frozenset[str]
    _known: dict
    _stated: dict[str, Any]

    def __init__(self, script: str, flags: Flags):
        known = load_schema(script)
        stated: dict[str, Any] = {}
        for name, words in flags.items():  # the last of --NAME and --no_NAME counts
            if name.startswith("no_") and name not in known:
                stated[name[3:]] = False
                continue
            with suppress(ValueError, IndexError, KeyError):
                stated[name] = _read(known[name], words)
        fields = {
            "_given": frozenset(flags),
            "_known": known,
            "_stated": {name: value for name, value in stated.items() if name in known},
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    # Any: which flags there are, and of which type, is data (flags.json), not written down twice.
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._known:
            value = self._stated.get(name, self._known[name]["default"])
            if self._known[name]["type"] == "switch" and value == "off":
                return False
            return " ".join(map(str, value)) if name in self._stated and isinstance(value, list) else value
        if name in all_flags():
            return None
        raise AttributeError(f"--{name}: unknown")

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{name}: read-only")

    @property
    def stated(self) -> dict[str, Any]:
        """The explicit flags with their values in full: all values of a flag of several, and "off" of a switch."""
        return dict(self._stated)

    def given(self, name: str) -> bool:
        """Return whether the flag is explicit, by its own name."""
        return name in self._given

    def words(self, name: str) -> list[str]:
        """Return the words of a flag such as --pipeline_parallel_config; [] without it."""
        value = getattr(self, name)
        return split_words(name, value) if value else []


def _read(expected: dict, words: list[str]) -> Any:
    """Return the value of a flag. Raises ValueError, IndexError or KeyError for words that cannot be read."""
    kind = expected["type"]
    if kind == "bool":
        return not words or words[0].lower() in YES
    if kind == "switch":
        return switch(words[0] if words else expected["alone"])
    if kind in ("int", "float"):
        numbers = [read_number(expected, word) for word in words]
        return numbers if expected.get("many") else numbers[0]
    if expected.get("choices") and not set(words) <= {*map(str, expected["choices"])}:
        raise ValueError("not one of its choices")
    return words if expected.get("many") else " ".join(words)


def read_number(expected: dict, word: str) -> int | float:
    """Return the value of a numeric flag.

    Raises:
        ValueError: With the allowed values for other words.
    """
    kind, bounds = expected["type"], expected["range"]
    try:
        value = {"int": int, "float": float}[kind](word)
    except ValueError:
        value = math.nan
    inside = (
        abs(value) < math.inf  # math.isfinite takes no integer beyond a float's range
        and bounds.get("least", value) <= value <= bounds.get("most", value)
        and ("above" not in bounds or bounds["above"] < value)
        and ("below" not in bounds or value < bounds["below"])
    )
    if not inside:
        raise ValueError(range_text(expected))
    return value


def expectation(word: str, expected: dict) -> str | None:
    """Return the expected value, None where it is right."""
    kind = expected["type"]
    if kind == "bool":
        return None if word.lower() in (*YES, *NO) else "1 or 0 (true, false)"
    if kind == "switch":
        return None if word.lower() in (*CHOICES, *ALIASES) else ", ".join(CHOICES)
    if kind in ("int", "float"):
        try:
            read_number(expected, word)
        except ValueError as error:
            return str(error)
    choices = expected.get("choices") or expected.get("words")
    return ", ".join(map(str, choices)) if choices and word not in map(str, choices) else None


def range_text(expected: dict) -> str:
    """Return the values that a numeric flag takes, in words: "a number, at least 0 and below 1"."""
    words = {"least": "at least", "above": "above", "most": "at most", "below": "below"}
    bounds = [f"{words[side]} {bound:,}" for side, bound in expected["range"].items()]
    return f"{'a whole number' if expected['type'] == 'int' else 'a number'}, {' and '.join(bounds)}"


def switch(value: str) -> str:
    """Return `value` as one of auto, on, off, required; 0/false and 1/true mean off and on.

    Raises:
        ValueError: For others.
    """
    choice = ALIASES.get(value.lower(), value.lower())
    if choice not in CHOICES:
        raise ValueError(f"found {value!r}, allowed: {', '.join(CHOICES)} (or 0/1, false/true)")
    return choice
