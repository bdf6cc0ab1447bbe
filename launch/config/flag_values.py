"""The arguments of a command line as flags, and what a run's flags mean: explicit values, else the defaults."""

from contextlib import suppress
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from launch.config.flag import Flag, default_of
from launch.config.flags import CommonFlags, MethodFlags
from launch.errors import UserError
from launch.methods.method import Method
from launch.methods.registry import method_of

LOWER_IS_BETTER = ("loss", "perplexity", "rewards_rejected", "kl")

Flags = dict[str, list[str]]  # name without dashes -> its arguments


@lru_cache
def all_flags() -> dict[str, Flag]:
    """Return the flags of all methods together; one of several methods without what is a method's own."""
    return {field.name: field.metadata["flag"] for field in fields(MethodFlags)}


def known_flags(script: str) -> dict[str, Flag]:
    """Return the flags of a method, by name or script, in alphabetical order."""
    return _known_flags(method_of(script))


@lru_cache
def _known_flags(method: Method) -> dict[str, Flag]:
    known = {field.name: all_flags()[field.name] for field in fields(CommonFlags)}
    for field in (field for kind in method.arguments for field in fields(kind)):
        own = {"default": default_of(field), "choices": tuple(field.metadata.get("choices", ()))}
        known[field.name] = replace(all_flags()[field.name], **own)
    return dict(sorted(known.items()))


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


def with_flags_behind(flags: Flags, further: Flags) -> Flags:
    """Return the flags of a command line with further ones at its end, which win."""
    return {name: words for name, words in flags.items() if name not in further} | further


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


class FlagValues(MethodFlags):
    """Values of a method's flags as attributes: explicit ones, else the defaults. Read-only; RunConfig makes it.

    A flag that only another method has is None. An argument that cannot be read, or a number out of its range, counts
    as missing: the check of the flags reports it. A switch that is off is False, else "auto", "on" or "required"; of
    several values the attribute is one text.

    Attributes:
        explicit: The explicit flags with their values in full: all values of a flag of several, and "off" of a switch.
    """

    explicit: dict[str, Any]

    def __init__(self, script: str, flags: Flags):
        known = known_flags(script)
        explicit: dict[str, Any] = {}
        for name, arguments in flags.items():  # the last of --NAME and --no_NAME counts
            if name.startswith("no_") and name not in known:
                explicit[name[3:]] = False
            elif name in known:
                with suppress(ValueError, IndexError):
                    explicit[name] = known[name].read(arguments)
        explicit = {name: value for name, value in explicit.items() if name in known}
        shown = {name: known[name].value(value) for name, value in explicit.items()}
        vars(self).update(_own_defaults(method_of(script)) | shown | {"explicit": explicit, "_given": frozenset(flags)})

    def given(self, name: str) -> bool:
        """Return whether the flag is explicit, by its own name."""
        return name in vars(self)["_given"]

    def words(self, name: str) -> list[str]:
        """Return the words of a flag such as --pipeline_parallel_config; [] without it."""
        value = getattr(self, name)
        return split_words(name, value) if value else []


@lru_cache
def _own_defaults(method: Method) -> dict[str, Any]:
    """Return the defaults of the flags that not all methods have."""
    common = {field.name for field in fields(CommonFlags)}
    known = _known_flags(method)
    return {name: flag.value(flag.default) for name, flag in known.items() if name not in common}
