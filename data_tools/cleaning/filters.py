"""Rules that a single text passes or not."""

import re
from collections.abc import Callable
from dataclasses import dataclass

LETTER = re.compile(r"[^\W\d_]")  # of any script: Chinese characters, too
DIGIT = re.compile(r"\d")
SPACE = re.compile(r"\s")


@dataclass(frozen=True)
class Rule:
    """name: the flag that asks for it; keeps: whether a text passes."""

    name: str
    keeps: Callable[[str], bool]


def rules(
    min_chars: int | None = None,
    max_chars: int | None = None,
    min_letters: float | None = None,
    max_digits: float | None = None,
) -> list[Rule]:
    """The rules asked for, cheap ones first. Lengths in characters without space around; letters and digits as shares
    of the characters that are no space."""
    selected = []
    if min_chars is not None:
        selected.append(Rule("min_chars", lambda text: len(text.strip()) >= min_chars))
    if max_chars is not None:
        selected.append(Rule("max_chars", lambda text: len(text.strip()) <= max_chars))
    if min_letters is not None:
        selected.append(Rule("min_letters", lambda text: share(LETTER, text) >= min_letters))
    if max_digits is not None:
        selected.append(Rule("max_digits", lambda text: share(DIGIT, text) <= max_digits))
    return selected


def share(kind: re.Pattern, text: str) -> float:
    """The part of the characters that are of this kind, spaces not counted; 0 for a text of spaces."""
    characters = len(SPACE.sub("", text))
    return len(kind.findall(text)) / characters if characters else 0.0
