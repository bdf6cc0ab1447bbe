"""What is told of a line that cannot be read: it is not UTF-8, or not JSON."""

import json
import shlex
from pathlib import Path

PLAIN = (".json", ".jsonl", ".txt")


def not_utf8(error: UnicodeDecodeError, file: str | Path) -> str:
    """error: of bytes of this file. Where they are GB18030, of which GBK and GB2312 are parts, with the command that
    converts a file that is not packed."""
    fault, path = f"not UTF-8 at byte {error.start}", Path(file)
    try:
        error.object.decode("gb18030")
    except UnicodeDecodeError:
        return f"{fault}. Convert the file to UTF-8"
    if path.suffix not in PLAIN:
        return f"{fault}, can be read as GB18030. Convert its text to UTF-8"
    source, target = (shlex.quote(str(file)) for file in (path, path.with_name(f"utf8-{path.name}")))
    return f"{fault}, can be read as GB18030. Convert the file: `iconv -f GB18030 -t UTF-8 {source} > {target}`"


def not_json(error: json.JSONDecodeError) -> str:
    return f"not JSON, {error.msg.removesuffix(' at')} at column {error.colno}"  # "Unterminated string starting at"
