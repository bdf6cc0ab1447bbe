"""Chat templates: the text around the turns of a dialogue, in PaddleNLP's chat_template.json form.

    {"system": "...", "conversation": ["...{{user}}...", "...{{bot}}..."], "query": "...{{query}}..."}

Each text is a Jinja template; system may be left out. They see `index` (0 for the first turn) and `system`, the
dialogue's own system text or nothing. query is what is asked at last, when a model shall answer: without it the first
text of `conversation` serves.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jinja2 import TemplateError
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from data_tools.formats.dialogues.dialogue import Dialogue
from data_tools.formats.errors import DataError

# As PaddleNLP renders them (paddlenlp/transformers/tokenizer_utils.py, ChatTemplate).
JINJA = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)


@dataclass(frozen=True)
class ChatTemplate:
    """system: text before the first turn; question, answer: the two texts of a turn."""

    system: str
    question: str
    answer: str

    def render(self, dialogue: Dialogue) -> list[tuple[str, str]]:
        """(all text before an answer, the answer with what ends it) of each turn.

        The system text of a dialogue stands before the first question where the template has no place for it.
        """
        system, question, answer = self._compiled
        opening = system.render(system=dialogue.system)
        texts = []
        for index, turn in enumerate(dialogue.turns):
            asked = turn.prompt
            if index == 0 and dialogue.system and not self._has_place_for_system:
                asked = f"{dialogue.system}\n\n{asked}"
            before = question.render(user=asked, index=index, system=dialogue.system)
            after = answer.render(bot=turn.answer, index=index, system=dialogue.system)
            texts.append((opening + before if index == 0 else before, after))
        return texts

    @cached_property
    def _has_place_for_system(self) -> bool:
        parsed = (JINJA.parse(text) for text in (self.system, self.question))
        return any("system" in find_undeclared_variables(text) for text in parsed)

    @cached_property
    def _compiled(self) -> tuple:
        return tuple(JINJA.from_string(text) for text in (self.system, self.question, self.answer))


def load_template(file: str | Path) -> ChatTemplate:
    """Raises DataError where the file is none, or not of PaddleNLP's form."""
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
        question, answer = content["conversation"]
        template = ChatTemplate(content.get("system") or "", question, answer)
        template._compiled
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, TemplateError) as error:
        raise DataError(
            f'{file}: no chat template ({error}): expected {{"conversation": ["...{{{{user}}}}...", '
            '"...{{bot}}..."]}.'
        ) from None
    return template
