"""Are the dialogues there, and can every row be read?"""

from data_tools.formats.dialogues.chat_template import load_template
from data_tools.formats.dialogues.datasets import Columns, survey
from data_tools.formats.dialogues.rows import Rows
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural
from launch.errors import UserError
from launch.models.chat import template_file, template_names
from launch.models.flag_values import FlagValues
from launch.preflight.report import Finding
from launch.preflight.situation import Situation


def check_sft_data(situation: Situation) -> list[Finding]:
    """Read every row that --dataset_name_or_path names, look for the chat template, compare the lengths."""
    values = FlagValues(situation.script, situation.flags)
    return [*_check_rows(values), *_check_template(values), *_check_lengths(values)]


def _check_rows(values: FlagValues) -> list[Finding]:
    if not values.dataset_name_or_path:
        fix = "--dataset_name_or_path FOLDER or DATA=FOLDER, with train.json and dev.json"
        return [Finding(False, "data", "no --dataset_name_or_path", fix)]
    wanted = tuple(name for name, needed in (("train", values.do_train), ("dev", values.do_eval)) if needed)
    columns = Columns(values.prompt_column, values.response_column)
    try:
        found = survey(values.dataset_name_or_path, wanted, columns, values.max_broken_rows)
    except DataError as error:
        return [Finding(False, "data", str(error), "DATA=FOLDER or --dataset_name_or_path names other data")]
    parts = [_describe(name, source) for name, source in (("train", found.train), ("dev", found.dev)) if source]
    if found.faults:
        parts.append(f"broken rows left out: {len(found.faults)}, the first {found.faults[0]}")
    return [Finding(True, "data", "; ".join(parts) or "none needed")]


def _describe(name: str, sources: list[list[Rows]]) -> str:
    """train 114,599 dialogues (content/summary)"""
    rows = [one for source in sources for one in source]
    schemas = ", ".join(dict.fromkeys(one.schema.name for one in rows))
    dialogues = sum(len(one.dialogues) for one in rows)
    return f"{name} {plural(dialogues, 'dialogue')} ({schemas})"


def _check_template(values: FlagValues) -> list[Finding]:
    if not values.chat_template:
        return []
    try:
        load_template(template_file(values.chat_template, {}))
    except (UserError, DataError) as error:
        return [Finding(False, "--chat_template", str(error), f"one of {', '.join(template_names())}, or a file")]
    return [Finding(True, "chat template", values.chat_template)]


def _check_lengths(values: FlagValues) -> list[Finding]:
    if values.src_length < values.max_length:
        return []
    found = f"{values.src_length}, no less than --max_length {values.max_length}: no room for an answer"
    return [Finding(False, "--src_length", found, f"--max_length {2 * values.src_length}, or a shorter --src_length")]
