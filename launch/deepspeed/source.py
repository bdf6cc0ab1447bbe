"""Read a JSON file into its values by dotted key, each with the line that its key stands in."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.errors import UserError

# A string, with the colon behind it where it is a key; else what opens and closes. Numbers and words matter not.
_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|[{}\[\]]')


@dataclass(frozen=True)
class Stated:
    """What a file states. key: with dots, such as fp16.enabled. value: no object with keys of its own."""

    file: str
    line: int
    key: str
    value: Any

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}: {self.key}"

    @property
    def text(self) -> str:
        """The value as JSON has it."""
        return json.dumps(self.value, ensure_ascii=False)


def read_source(path: Path | str) -> list[Stated]:
    """All that a file states, in its order. Raises UserError, with file and line, where it is no JSON object or states
    a key twice."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        values = json.loads(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is no UTF-8 text: byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: no JSON at column {error.colno}: {error.msg}") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}:1: found {type(values).__name__}; expected an object, {{...}}")
    lines = _lines_of_keys(text, str(path))
    return [Stated(str(path), lines[key], key, value) for key, value in _leaves(values)]


def _leaves(values: dict, prefix: str = ""):
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _lines_of_keys(text: str, file: str) -> dict[str, int]:
    """{dotted key: line} of valid JSON; keys of objects in lists are not looked at."""
    lines, path, lists, key = {}, [], 0, ""
    for token in _TOKEN.finditer(text):
        if token[0] in "[]":
            lists += 1 if token[0] == "[" else -1
        elif lists:
            continue
        elif token[0] == "{":
            path.append(key)
        elif token[0] == "}":
            path.pop()
        elif token[2]:
            key = json.loads(token[1])
            dotted, line = ".".join([*path[1:], key]), text.count("\n", 0, token.start()) + 1
            if dotted in lines:
                raise UserError(f"{file}:{line}: {dotted}: stated in line {lines[dotted]}, too. Keep one.")
            lines[dotted] = line
    return lines
