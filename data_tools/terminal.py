"""What a stream can show: signs, colours, how many columns. The standard library alone."""

import io
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from typing import TextIO

WIDTH = 80
CLOSING, OPENING = "，。；：、？！）》”", "（《“"


def width() -> int:
    """Return the columns of text: the terminal's, or COLUMNS; 80 without a terminal, and at most, to be readable."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def wrapped(text: str, first: str = "", further: str = "") -> str:
    """Wrap a text to the terminal's width; lines begin with `first` and `further`.

    Words and paths, to be copied, stay whole.
    """
    if columns(text) != len(text):
        return _wrapped_by_columns(text, first, further)
    return textwrap.fill(
        text,
        width(),
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def columns(text: str) -> int:
    """Return the columns that a terminal needs for a text: a Chinese character takes two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _wrapped_by_columns(text: str, first: str, further: str) -> str:
    """Wrap a Chinese text behind any character: no closing mark begins a line, and no opening one ends it."""
    lines, line = [], first
    for piece in re.findall(r"[\u2e80-\u9fff\uff00-\uffef]|\s+|[^\s\u2e80-\u9fff\uff00-\uffef]+", text):
        if columns(line + piece.rstrip()) > width() and line.strip() and piece not in CLOSING:
            opened = line[-1:] if line[-1:] in OPENING else ""
            lines.append(line.removesuffix(opened).rstrip())
            line = further + opened
            piece = piece.lstrip()
        line += piece
    return "\n".join([*lines, line.rstrip()])


def has_colours(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that knows colours, and NO_COLOR is not set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def sign(symbol: str, plain: str, stream: TextIO) -> str:
    """Return the symbol, or plain characters where the stream's encoding lacks it."""
    try:
        symbol.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return plain
    return symbol


def marks(stream: TextIO) -> tuple[str, str]:
    """Return the marks for good and for bad."""
    return sign("✓", "ok", stream), sign("✗", "NO", stream)


def prepare_streams() -> None:
    """Have stdout print ? for characters that its encoding lacks, such as the Chinese of a document, and not fail.

    A stream that is closed takes all and shows nothing.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
