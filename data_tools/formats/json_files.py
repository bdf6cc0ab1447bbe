"""JSON as it comes from others: what cannot be read is a reason, never another exception."""

import codecs
import json
from pathlib import Path

from data_tools.formats.errors import DataError
from data_tools.formats.lines import not_json, not_utf8

BOM = codecs.BOM_UTF8  # some editors put it before a file's first character; it is no part of the text


class NotJson(Exception):
    """Why bytes are no JSON value."""


def parse_json(content: bytes, file: str | Path) -> object:
    """The value of a line or file. Raises NotJson. file: where it is from."""
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise NotJson(not_utf8(error, file)) from None
    except json.JSONDecodeError as error:
        raise NotJson(not_json(error)) from None
    except RecursionError:
        raise NotJson("JSON that Python refuses, too many brackets within brackets") from None
    except ValueError as error:  # a number of thousands of digits
        raise NotJson(f"JSON that Python refuses, {error}") from None


def read_object(path: Path) -> dict:
    """The values of a JSON file; none where there is no file. Raises DataError where it holds no object."""
    if not path.is_file():
        return {}
    try:
        content = parse_json(path.read_bytes().removeprefix(BOM), path)
    except NotJson as error:
        raise DataError(f"{path}: {error}. Copy the file again.") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}.") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: found a JSON {type(content).__name__}, expected an object. Copy the file again.")
    return content


def shown(value: object, length: int = 40) -> str:
    """A value in a message: its beginning; what would not be seen, or is for the terminal itself, as \\x1b."""
    try:
        text = value if isinstance(value, str) else str(value)
    except (RecursionError, ValueError):  # lists within lists; a number of thousands of digits
        text = f"a {type(value).__name__}"
    seen = (
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[:length]
    )
    return "".join(seen)
