"""Files of keys and values that other programs' users wrote, as JSON or YAML: every key with its line.

[Stated("ds_config.json", 3, "fp16.enabled", True), ...] = read_source("ds_config.json")
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_tools.formats.json_files import require_file, shown
from launch.errors import UserError

YAML = (".yaml", ".yml")
LONGEST_SHOWN = 200  # characters of a value in a message
LARGEST_FILE = 1 << 20  # bytes: a file of arguments has some thousand

# What hjson, DeepSpeed's reader, takes beside JSON: comments, then a comma before what closes; strings stay.
_LENIENT = tuple(
    re.compile(rf'("(?:[^"\\]|\\.)*")|{beside}', re.DOTALL)
    for beside in (r"(?:#|//)[^\n]*|/\*.*?\*/", r",(?=\s*[}\]])")
)
# A string, with the colon behind it where it is a key; else what opens and closes. Numbers and words matter not.
_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|[{}\[\]]')


@dataclass(frozen=True)
class Stated:
    """An entry of a file.

    Attributes:
        key: With dots, such as fp16.enabled.
        value: No object with keys of its own.
        written: The key as the file has it, where `key` is another program's name for it.
    """

    file: str
    line: int
    key: str
    value: Any
    written: str = ""

    @property
    def place(self) -> str:
        """The place of the entry, for messages."""
        return f"{self.file}:{self.line}: {self.written or self.key}"

    @property
    def text(self) -> str:
        """The value as JSON has it, its beginning where it is long."""
        text = json.dumps(self.value, ensure_ascii=False)
        return shown(text, LONGEST_SHOWN) + " ..." * (len(text) > LONGEST_SHOWN)


def read_source(path: Path | str, lenient: bool = False) -> list[Stated]:
    """Return all entries of a file, in its order. lenient: comments and trailing commas in JSON are read over.

    Raises:
        UserError: With file and line, where it is no JSON object (a .yaml file: no mapping of keys to values), or
            has a key twice.
    """
    source = Path(path).expanduser()
    require_file(source)
    try:
        if (size := source.stat().st_size) > LARGEST_FILE:
            raise UserError(f"{path}: found {size:,} bytes, allowed in a file of arguments: {LARGEST_FILE:,}.")
        text = source.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is no UTF-8 text: byte {error.start}") from error
    for pattern in _LENIENT if lenient and Path(path).suffix not in YAML else ():
        text = pattern.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)
    return list((_of_yaml if Path(path).suffix in YAML else _of_json)(text, str(path)))


def _of_json(text: str, file: str) -> Iterator[Stated]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{file}:{error.lineno}: no JSON at column {error.colno}: {error.msg}") from error
    except RecursionError:
        raise UserError(f"{file}: lists or objects are nested too deeply.") from None
    except ValueError as error:  # a number of thousands of digits
        raise UserError(f"{file}: no JSON that Python reads: {error}.") from None
    if not isinstance(values, dict):
        raise UserError(f"{file}:1: found {type(values).__name__}; expected an object, {{...}}")
    lines = _lines_of_keys(text, file)
    return (Stated(file, lines[key], key, value) for key, value in _leaves(values))


def _leaves(values: dict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _lines_of_keys(text: str, file: str) -> dict[str, int]:
    """Return {dotted key: line} of valid JSON; keys of objects in lists are not looked at."""
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
                raise UserError(_twice(file, line, dotted, lines[dotted]))
            lines[dotted] = line
    return lines


def _twice(file: str, line: int, key: str, before: int) -> str:
    return f"{file}:{line}: {key}: also in line {before}. Keep one."


def _of_yaml(text: str, file: str) -> Iterator[Stated]:
    """Return all keys. Mappings in lists, lists in them, and aliases of mappings are refused with their line."""
    try:
        import yaml  # only here: most files are JSON, and plans run where nothing is installed
    except ImportError:
        raise UserError(f"{file}: YAML needs the package PyYAML. Run make setup, or write it as JSON.") from None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{file}:{mark.line + 1}: no YAML at column {mark.column + 1}" if mark else f"{file}: no YAML"
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "nested too deeply"
        raise UserError(f"{place}: {reason}") from None
    if not isinstance(root, yaml.MappingNode):
        raise UserError(f"{file}:1: found no mapping; expected lines of key: value")

    def scalar(node: Any) -> Any:
        """Return a yes or no, a number, nothing or, of another scalar, its text."""
        if isinstance(node, yaml.MappingNode) and not node.value:
            return {}
        if not isinstance(node, yaml.ScalarNode):
            raise UserError(f"{file}:{node.start_mark.line + 1}: found something nested; expected key: value")
        try:
            plain = node.tag.rpartition(":")[2] in ("bool", "int", "float", "null")
            return loader.construct_object(node) if plain else node.value
        except (ValueError, KeyError):  # !!int a, !!bool a
            return node.value

    stated, lines, mappings = [], {}, {root}

    def read(mapping: Any, prefix: str) -> None:
        for key_node, node in mapping.value:
            key, line = f"{prefix}{getattr(key_node, 'value', '')}", key_node.start_mark.line + 1
            if key in lines:
                raise UserError(_twice(file, line, key, lines[key]))
            lines[key] = line
            if isinstance(node, yaml.MappingNode) and node.value:
                if node in mappings:  # it may hold itself, or as many keys as two to the power of its lines
                    raise UserError(f"{file}:{line}: {key}: found an alias of a mapping; expected its keys")
                mappings.add(node)
                read(node, f"{key}.")
                continue
            value = [scalar(item) for item in node.value] if isinstance(node, yaml.SequenceNode) else scalar(node)
            stated.append(Stated(file, line, key, value))

    read(root, "")
    return iter(stated)
