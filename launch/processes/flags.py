"""Flags of a command line as data: `--name value value`, `--name=value` or `--name`; a later one wins."""

from launch.config.flag_values import Flags
from launch.errors import UserError


def parse_flags(words: list[str]) -> Flags:
    """Raises UserError for a word that belongs to no flag."""
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


def flag_lines(flags: Flags) -> list[list[str]]:
    """[["--name", "value"], ...]"""
    return [[f"--{name}", *words] for name, words in flags.items()]


def flag_words(flags: Flags) -> list[str]:
    """["--name", "value", ...], what a program takes as its arguments."""
    return [word for line in flag_lines(flags) for word in line]
