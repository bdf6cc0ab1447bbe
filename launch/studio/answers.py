"""Answers that need no server: what there is to choose from, plans, advice, layouts; and their texts in Chinese.

launch/studio/app.py sends them over HTTP. On the static page (launch/commands/studio_static.py) Python runs in the
browser and `answer_in_json` is what it calls: the standard library alone.
"""

import json
from collections.abc import Mapping

from data_tools.formats.errors import DataError
from data_tools.language import translated
from launch.errors import UserError
from launch.studio.planning import Choice, advice_of, layouts_of, offered, plan_of

# Keys of answers whose texts are messages.
MESSAGES = {"found", "fix", "about", "verdict", "notes", "title", "result", "speed", "duration", "subject", "summary"}
MESSAGES |= {"unused", "template"}  # of data
OF_A_CHOICE = {"plan": plan_of, "advice": advice_of, "layouts": layouts_of}


def answer(question: str, given: Mapping[str, object]) -> dict | list:
    """The answer to "offered", "plan", "advice" or "layouts", in English. Raises UserError for an unknown choice."""
    return offered() if question == "offered" else OF_A_CHOICE[question](Choice.read(given))


def in_chinese(found, is_message: bool = False):
    """An answer with its messages translated."""
    if isinstance(found, dict):
        return {key: in_chinese(value, key in MESSAGES) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [in_chinese(value, is_message) for value in found]
    return translated(found) if is_message and isinstance(found, str) else found


def answer_in_json(question: str, given: str, chinese: bool) -> str:
    """{"found": the answer}, or {"detail": what is wrong}. given: a choice as JSON."""
    try:
        found = answer(question, json.loads(given))
        return json.dumps({"found": in_chinese(found) if chinese else found})
    except (UserError, DataError, OSError) as error:
        return json.dumps({"detail": translated(str(error)) if chinese else str(error)})
