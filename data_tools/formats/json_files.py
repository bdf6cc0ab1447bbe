"""JSON as it comes from others: what cannot be read is a reason, never another exception."""

import codecs
import json
import shlex
from collections.abc import Callable
from pathlib import Path

from data_tools.formats.errors import DataError

BOM = codecs.BOM_UTF8  # some editors put it before a file's first character; it is no part of the text

PLAIN = (".json", ".jsonl", ".txt", ".csv")  # endings of files that iconv can read


class NotJson(Exception):
    """Why bytes are no JSON value."""


class RepeatedKey(ValueError):
    """A key twice in an object, of which most readers take the last value."""


def _unique(pairs: list[tuple[str, object]]) -> dict:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedKey(
            f"the key {shown(next(name for name in found if names.count(name) > 1))!r} twice in an object"
        )
    return found


ROWS = json.JSONDecoder(object_pairs_hook=_unique)


def parse_row(line: bytes, file: str | Path) -> object:
    """Return the value of a line. file: its source, for messages.

    Raises:
        NotJson: Also for a key twice in an object.
    """
    return parse_json(line, file, json.loads if line.startswith(BOM) else ROWS.decode)  # loads names the mark


def parse_json(content: bytes, file: str | Path, decode: Callable[[str], object] = json.loads) -> object:
    """Return the value of a file's content. file: its path, for messages. Raises NotJson."""
    try:
        return decode(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise NotJson(not_utf8(error, file)) from None
    except json.JSONDecodeError as error:
        raise NotJson(not_json(error)) from None
    except RepeatedKey as error:
        raise NotJson(str(error)) from None
    except RecursionError:
        raise NotJson("JSON that Python refuses, too many brackets within brackets") from None
    except ValueError as error:  # a number of thousands of digits
        raise NotJson(f"JSON that Python refuses, {error}") from None


def read_object(path: Path) -> dict:
    """Return the object of a JSON file, {} where there is no file.

    Raises:
        DataError: If it holds no object.
    """
    if not path.exists():
        return {}
    require_file(path)
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
    r"""Return the beginning of a value for a message; control and invisible characters are escaped, as \x1b."""
    try:
        text = value if isinstance(value, str) else str(value)
    except (RecursionError, ValueError):  # lists within lists; a number of thousands of digits
        text = f"a {type(value).__name__}"
    seen = (
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[:length]
    )
    return "".join(seen)


def quoted(value: object) -> str:
    """Return a value for a message as `shown` does, a text in quotes: it differs from a number, true or a list."""
    return shown(repr(value) if isinstance(value, str) else value)


def require_file(path: str | Path) -> None:
    """Raise DataError for a pipe or a device, which may never end."""
    if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
        raise DataError(f"{path}: found a pipe or a device, expected a file. Write its content into one.")


def not_utf8(error: UnicodeDecodeError, file: str | Path) -> str:
    """Return the message about bytes that are no UTF-8.

    Where they are GB18030, of which GBK and GB2312 are parts, it has the command that converts a file that is not
    packed.
    """
    fault, path = f"not UTF-8 at byte {error.start}", Path(file)
    try:
        error.object.decode("gb18030")
    except UnicodeDecodeError:
        return f"{fault}. Convert the file to UTF-8"
    if path.suffix not in PLAIN:
        return f"{fault}, can be read as GB18030. Convert its text to UTF-8"
    source, target = (shlex.quote(str(file)) for file in (path, path.with_name(f"utf8-{path.name}")))
    return f"{fault}, can be read as GB18030. Convert the file: `iconv -f GB18030 -t UTF-8 {source} > {target}`"


def with_fix(reason: str) -> str:
    """Return a sentence with the reason why a line or row cannot be read, and the fix."""
    return f"{reason}." if "Convert" in reason else f"{reason}. Mend or remove the line."


def not_json(error: json.JSONDecodeError) -> str:
    """Return the reason why a text is no JSON, with the column."""
    return f"not JSON, {error.msg.removesuffix(' at')} at column {error.colno}"  # "Unterminated string starting at"
