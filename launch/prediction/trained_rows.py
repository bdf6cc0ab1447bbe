"""The rows that a result was trained on, as the summary of its run names them: its system text, and what to ask it."""

import re
from collections import Counter
from itertools import islice
from pathlib import Path

from data_tools.dialogues.dialogue import find_schema
from data_tools.dialogues.messages import Dialogue, RowError
from data_tools.formats.errors import DataError
from data_tools.formats.records import records
from launch.checkpoint.manifest import CHECKPOINT
from launch.reporting.records import arguments_of, read_summary

FIRST_ROWS = 50  # of a file that are read


def flag_of_run(result: Path, name: str) -> str:
    """Return a flag of the run in the summary of its output folder; "" without one."""
    run = result.parent if CHECKPOINT.fullmatch(result.name) else result
    try:
        return str(arguments_of(read_summary(run)).get(name) or "")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ""


def data_files(result: Path, name: str) -> list[Path]:
    """Return the files with a name in the folders of the run's data."""
    stored = flag_of_run(result, "dataset_name_or_path")  # "['checkpoints/chats']"
    found = (Path(folder, name) for folder in re.findall(r"'([^']+)'", stored))
    return [file for file in found if file.is_file()]


def first_turns(result: Path, name: str) -> list[dict[str, str]]:
    """Return the first turns of a run's rows in files with a name: each with the keys asked, reference and system."""
    return [first for file in data_files(result, name) for one in _dialogues(file) if (first := _first_turn(one))]


def system_text(result: Path) -> str:
    """Return the system text that most of a run's rows have; "" for none."""
    turns = [*first_turns(result, "dev.json"), *first_turns(result, "train.json")]
    commonest = Counter(first["system"] for first in turns).most_common(1)
    return commonest[0][0] if commonest else ""


def _dialogues(file: Path) -> list[Dialogue]:
    """Return the dialogues of a file's first rows; none of rows that are no dialogues."""
    try:
        rows = [row for _, row in islice(records(file), FIRST_ROWS) if isinstance(row, dict)]
        return [*map(find_schema(rows).read, rows)]
    except (DataError, RowError, OSError):
        return []


def _first_turn(dialogue: Dialogue) -> dict[str, str] | None:
    """Return the first question of a dialogue, its response and its system text; None where it has another order."""
    roles = [message.role for message in dialogue.messages]
    start = int(roles[0] in ("system", "developer"))
    if dialogue.has_tools or roles[start : start + 2] != ["user", "assistant"]:
        return None
    asked, response = dialogue.messages[start : start + 2]
    return {"asked": asked.text, "reference": response.text, "system": dialogue.messages[0].text if start else ""}
