"""Values of variables in commands that are printed to be typed or pasted: `make X DATA=...`."""

import re
import shlex


def typed(value: object) -> str:
    """Return a value as it is typed behind `NAME=`, quoted for the shell and for make.

    make expands `$` in what the shell gives it and takes spaces away at the beginning.
    """
    text = str(value).replace("$", "$$")
    return shlex.quote(f"$(){text}" if text[:1].isspace() else text)


def within_quotes(arguments: str) -> str:
    """Return flags as they are typed within ARGS="...", which most read more easily."""
    return re.sub(r'([\\"`$])', r"\\\1", arguments.replace("$", "$$"))
