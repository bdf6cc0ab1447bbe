"""How a flag names one dataset, or several with weights: `./data` or `0.7 ./data/a 0.3 ./data/b`."""

import re
from pathlib import Path

from data_tools.formats.errors import DataError


def weighted_paths(flag: str, named: str) -> list[tuple[float | None, str]]:
    """(weight, path) of each dataset that a flag's value names; weight None for one alone.

    Words are divided by spaces or commas; a path that exists is never divided. Raises DataError when weights and paths
    do not take turns.
    """
    named = named.strip()
    words = [named] if Path(named).exists() else re.split(r"[,\s]+", named)
    if len(words) == 1:
        return [(None, named)]
    weights, paths = words[0::2], words[1::2]
    if len(weights) != len(paths) or not all(_is_weight(weight) for weight in weights):
        raise DataError(
            f"{flag} {named!r}: expected one path, or weights above 0 and paths in turn, such as "
            "`0.7 data/a 0.3 data/b`."
        )
    return [(float(weight), path) for weight, path in zip(weights, paths, strict=True)]


def _is_weight(word: str) -> bool:
    try:
        return 0 < float(word) < float("inf")
    except ValueError:
        return False
