"""Questions with choices, as lm-evaluation-harness asks them.

The prompts are those of its tasks mmlu, ceval-valid, cmmlu, arc, hellaswag, boolq, piqa and winogrande: a question is
asked as a text, and the model has chosen what it finds most likely as the continuation.
Source: https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/tasks.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LETTERS = "ABCD"
BETWEEN_SHOTS = "\n\n"


class NoQuestion(Exception):
    """Why a row is no question of its form."""


@dataclass(frozen=True)
class Question:
    """pairs: for each choice the text before it and the text that is scored; of a question that is answered in words,
    the same text and each right answer. lengths: characters of each choice. answer: the index of the right one, or of
    that which examples show. between: what stands between a question and a choice where no chat template does; the
    scored texts do not have it. subject: of the question, "" where the benchmark has none.
    """

    pairs: tuple[tuple[str, str], ...]
    lengths: tuple[int, ...]
    answer: int
    subject: str = ""
    between: str = " "

    @property
    def turn(self) -> tuple[str, str]:
        """Question and right answer, as a user and a model would say them."""
        return self.pairs[self.answer]

    @property
    def pair(self) -> str:
        """Question and right answer, as an example before another question."""
        before, choice = self.turn
        return before + self.between + choice


@dataclass(frozen=True)
class Form:
    """A benchmark's rows. keys: that tell it from others. read: the question of a row, or NoQuestion. description: the
    text before all questions of a subject, by its name; None: none. fits: tells rows from others with the same keys.
    measures: of answers that the model writes (launch/evaluation/written_scores.py); none where it chooses. until:
    texts that end such an answer and are no part of it. chinese: whether such answers are; None: as most of the right
    ones."""

    keys: tuple[str, ...]
    read: Callable[[dict], Question]
    description: Callable[[str], str] | None = None
    fits: Callable[[dict], bool] = lambda row: True
    measures: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    chinese: bool | None = False


def _choices(text: str, choices: list[str], answer: int, subject: str = "") -> Question:
    if not 0 <= answer < len(choices):
        raise NoQuestion(f"the answer is choice {answer} of {len(choices)}, counted from 0")
    if not all(choices):
        raise NoQuestion(f"choice {choices.index('')}, counted from 0, has no text")
    return Question(tuple((text, choice) for choice in choices), tuple(map(len, choices)), answer, subject)


def _letters(text: str, choices: list[str], answer: int, subject: str, end: str) -> Question:
    """The choices stand in the question; their letters are scored."""
    listed = "".join(f"\n{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=True))
    return _choices(f"{text.strip()}{listed}\n{end}", list(LETTERS), answer, subject)


def text_of(row: dict, key: str) -> str:
    """Raises NoQuestion where it is no text, or a blank one."""
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise NoQuestion(f"{key}: found {value!r}, expected a text")
    return value


def _index(row: dict, key: str, first: int = 0) -> int:
    """A whole number, which may be written as a text."""
    value = row.get(key)
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or int(text) < first:
        raise NoQuestion(_unanswered(key, value, "a number"))
    return int(text) - first


def _letter(row: dict, key: str) -> int:
    value = row.get(key)
    if not isinstance(value, str) or value.strip() not in tuple(LETTERS):
        raise NoQuestion(_unanswered(key, value, "A, B, C or D"))
    return LETTERS.index(value.strip())


def _unanswered(key: str, value: object, expected: str) -> str:
    if value in (None, "", -1, "-1"):
        return f"{key}: no answer, as in files for a leaderboard: take those of the validation"
    return f"{key}: found {value!r}, expected {expected}"


def _mmlu(row: dict) -> Question:
    choices = row.get("choices")
    subject = row.get("subject") or ""
    if choices is None:  # a line of the original CSV files
        choices, answer = [text_of(row, letter) for letter in LETTERS], _letter(row, "answer")
    else:
        if len(choices) != len(LETTERS):
            raise NoQuestion(f"choices: found {len(choices)}, expected 4")
        answer = _index(row, "answer")
    return _letters(text_of(row, "question"), list(choices), answer, subject, "Answer:")


def _chinese(question: str, answer: str) -> Callable[[dict], Question]:
    def read(row: dict) -> Question:
        choices = [text_of(row, letter) for letter in LETTERS]
        return _letters(text_of(row, question), choices, _letter(row, answer), row.get("subject") or "", "答案：")

    return read


def _arc(row: dict) -> Question:
    question, choices = row.get("question"), row.get("choices")
    if isinstance(question, dict):  # the original JSON lines
        choices = {key: [choice.get(key) for choice in question.get("choices", [])] for key in ("text", "label")}
        question = question.get("stem")
    if not isinstance(choices, dict):
        raise NoQuestion(f"choices: found {choices!r}, expected an object with text and label")
    labels, key = list(choices["label"]), row.get("answerKey")
    if key not in labels:
        raise NoQuestion(_unanswered("answerKey", key, f"one of {', '.join(map(str, labels))}"))
    text = text_of({"question": question}, "question")
    return _choices(f"Question: {text}\nAnswer:", list(choices["text"]), labels.index(key))


def _hellaswag(row: dict) -> Question:
    context = f"{text_of(row, 'ctx_a')} {row.get('ctx_b', '').capitalize()}"
    text = _without_marks(f"{text_of(row, 'activity_label')}: {context}")
    return _choices(text, [_without_marks(ending) for ending in row["endings"]], _index(row, "label"))


def _without_marks(text: str) -> str:
    """WikiHow's headings and step numbers stand in brackets."""
    text = re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


def _boolq(row: dict) -> Question:
    stated = row.get("answer", row.get("label"))
    if stated not in (True, False, 0, 1):
        raise NoQuestion(_unanswered("answer", stated, "true or false"))
    return _choices(
        f"{text_of(row, 'passage')}\nQuestion: {text_of(row, 'question')}?\nAnswer:", ["no", "yes"], int(stated)
    )


def _piqa(row: dict) -> Question:
    choices = [text_of(row, "sol1"), text_of(row, "sol2")]
    return _choices(f"Question: {text_of(row, 'goal')}\nAnswer:", choices, _index(row, "label"))


def _winogrande(row: dict) -> Question:
    """The choices stand in the text before, and what follows the gap is scored."""
    before, gap, after = text_of(row, "sentence").partition("_")
    if not gap:
        raise NoQuestion("sentence: no gap, _")
    options = [text_of(row, key) for key in ("option1", "option2")]
    answer, rest = _index(row, "answer", first=1), after.strip()
    if not rest:
        raise NoQuestion("sentence: nothing behind the gap, which is what is scored")
    if answer > 1:
        raise NoQuestion("answer: found more than 2")
    return Question(tuple((before + option, rest) for option in options), (len(rest),) * 2, answer)


@cache
def _subjects() -> dict[str, dict[str, str]]:
    """Names of the subjects of C-Eval and CMMLU, as their authors give them."""
    return json.loads(Path(__file__).with_name("subjects.json").read_text(encoding="utf-8"))


def _about_ceval(subject: str) -> str:
    name = _subjects()["ceval"].get(subject, subject)
    return f"以下是中国关于{name}的单项选择题，请选出其中的正确答案。\n\n"


def _about_cmmlu(subject: str) -> str:
    name = _subjects()["cmmlu"].get(subject, subject)
    return f"以下是关于{name}的单项选择题，请直接给出正确答案的选项。\n\n"


def _about_mmlu(subject: str) -> str:
    name = subject.replace("_", " ")
    return f"The following are multiple choice questions (with answers) about {name}.\n\n"


CHOICES = {
    "cmmlu": Form(("Question", *LETTERS, "Answer"), _chinese("Question", "Answer"), _about_cmmlu),
    "ceval": Form(("id", "question", *LETTERS, "answer"), _chinese("question", "answer"), _about_ceval),
    "hellaswag": Form(("ctx_a", "activity_label", "endings", "label"), _hellaswag),
    "winogrande": Form(("sentence", "option1", "option2", "answer"), _winogrande),
    "piqa": Form(("goal", "sol1", "sol2"), _piqa),
    "boolq": Form(("passage", "question"), _boolq),
    "arc": Form(("question", "answerKey"), _arc),
    "mmlu": Form(("question", "answer"), _mmlu, _about_mmlu),
}
