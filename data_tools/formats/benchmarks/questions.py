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

from data_tools.formats.json_files import shown

LETTERS = "ABCD"
BETWEEN_SHOTS = "\n\n"
BOOLEANS = {"false": 0, "true": 1, "0": 0, "1": 1}


class NoQuestion(Exception):
    """Why a row is no question of its form."""


@dataclass(frozen=True)
class Question:
    """pairs: for each choice the text before it and the text that is scored; of a question that is answered in words,
    the same text and each right answer. answer: the index of the right one, or of that which examples show. between:
    what stands between a question and a choice where no chat template does; the scored texts do not have it. subject:
    of the question, "" where the benchmark has none.
    """

    pairs: tuple[tuple[str, str], ...]
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
    """A benchmark's rows. keys: that tell it from others, without those of the answer, which files for a leaderboard
    lack. read: the question of a row, or NoQuestion. description: the text before all questions of a subject, by its
    name; None: none. fits: tells rows from others with the same keys. measures: of launch/evaluation/tasks.py where the
    model chooses, of launch/evaluation/written_scores.py where it writes. until: texts that end an answer and are no
    part of it. chinese: whether the answers are; None: as most of the right ones."""

    keys: tuple[str, ...]
    read: Callable[[dict], Question]
    description: Callable[[str], str] | None = None
    fits: Callable[[dict], bool] = lambda row: True
    measures: tuple[str, ...] = ("acc", "acc_norm")
    until: tuple[str, ...] = ()
    chinese: bool | None = False


def _choices(text: str, choices: list[str], answer: int, subject: str = "") -> Question:
    if not all(choices):
        raise NoQuestion(f"choice {choices.index('')}, counted from 0, has no text")
    return Question(tuple((text, choice) for choice in choices), answer, subject)


def _letters(text: str, choices: list[str], answer: int, subject: str, end: str) -> Question:
    """The choices stand in the question; their letters are scored."""
    listed = "".join(f"\n{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=True))
    return _choices(f"{text.strip()}{listed}\n{end}", list(LETTERS), answer, subject)


# ---- values of a row; what they are not is a NoQuestion


def text_of(row: dict, key: str) -> str:
    """A text that is not blank."""
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise NoQuestion(f"{key}: found {seen(value)}, expected a text")
    return value


def text_or_none(row: dict, key: str) -> str:
    """A text; "" where there is none."""
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise NoQuestion(f"{key}: found {seen(value)}, expected a text, or none")
    return value or ""


def texts_of(row: dict, key: str) -> list[str]:
    """Texts that are not blank, one at least."""
    values = row.get(key)
    if not isinstance(values, list) or not values or not all(isinstance(one, str) and one.strip() for one in values):
        raise NoQuestion(f"{key}: found {seen(values)}, expected a list of texts")
    return values


def _index(row: dict, key: str, count: int, first: int = 0) -> int:
    """Of one of `count` choices, from 0. In the row, where the first is number `first`, it may be a text, or a float,
    as pandas writes whole numbers beside missing ones."""
    value = row.get(key)
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    numbers = [str(number) for number in range(first, first + count)]
    if isinstance(value, bool) or text not in numbers:
        raise NoQuestion(_unanswered(key, value, f"{numbers[0]} to {numbers[-1]}"))
    return numbers.index(text)


def _letter(row: dict, key: str) -> int:
    value = row.get(key)
    if not isinstance(value, str) or value.strip() not in tuple(LETTERS):
        raise NoQuestion(_unanswered(key, value, "A, B, C or D"))
    return LETTERS.index(value.strip())


def _unanswered(key: str, value: object, expected: str) -> str:
    if value in (None, "", -1, "-1") or value != value:
        return f"{key}: no answer, as in files for a leaderboard. Take a split that has them: --split val"
    return f"{key}: found {seen(value)}, expected {expected}"


def seen(value: object) -> str:
    """The beginning of a value, for a message."""
    return shown(repr(value) if isinstance(value, str) else value)


# ---- each benchmark


def _mmlu(row: dict) -> Question:
    if row.get("choices") is None:  # a line of the original CSV files
        choices, answer = [text_of(row, letter) for letter in LETTERS], _letter(row, "answer")
    else:
        choices, answer = texts_of(row, "choices"), _index(row, "answer", len(LETTERS))
        if len(choices) != len(LETTERS):
            raise NoQuestion(f"choices: found {len(choices)}, expected 4")
    return _letters(text_of(row, "question"), choices, answer, text_or_none(row, "subject"), "Answer:")


def _chinese(question: str, answer: str) -> Callable[[dict], Question]:
    def read(row: dict) -> Question:
        choices = [text_of(row, letter) for letter in LETTERS]
        subject = text_or_none(row, "subject")
        return _letters(text_of(row, question), choices, _letter(row, answer), subject, "答案：")

    return read


def _arc(row: dict) -> Question:
    question, choices = row.get("question"), row.get("choices")
    if isinstance(question, dict):  # the original JSON lines
        question, choices = question.get("stem"), question.get("choices")
    lists = lists_of(choices, ("text", "label"))
    if lists is None:
        raise NoQuestion(f"choices: found {seen(choices)}, expected an object with text and label")
    texts, labels, key = texts_of(lists, "text"), texts_of(lists, "label"), row.get("answerKey")
    if len(texts) != len(labels):
        raise NoQuestion(f"choices: {len(texts)} texts and {len(labels)} labels")
    if key not in labels:
        raise NoQuestion(_unanswered("answerKey", key, f"one of {', '.join(labels)}"))
    text = text_of({"question": question}, "question")
    return _choices(f"Question: {text}\nAnswer:", texts, labels.index(key))


def lists_of(values: object, keys: tuple[str, ...]) -> dict | None:
    """An object of lists, as hubs have it; from a list of objects, as in original files. None: it is neither."""
    if isinstance(values, list) and all(isinstance(one, dict) for one in values):
        return {key: [one.get(key) for one in values] for key in keys}
    return values if isinstance(values, dict) else None


def _hellaswag(row: dict) -> Question:
    context = f"{text_of(row, 'ctx_a')} {text_or_none(row, 'ctx_b').capitalize()}"
    endings = [_without_marks(ending) for ending in texts_of(row, "endings")]
    text = _without_marks(f"{text_of(row, 'activity_label')}: {context}")
    return _choices(text, endings, _index(row, "label", len(endings)))


def _without_marks(text: str) -> str:
    """WikiHow's headings and step numbers stand in brackets."""
    text = re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


def _boolq(row: dict) -> Question:
    key = "answer" if "answer" in row else "label"
    stated = str(row.get(key)).lower()
    if stated not in BOOLEANS:
        raise NoQuestion(_unanswered(key, row.get(key), "true or false"))
    text = f"{text_of(row, 'passage')}\nQuestion: {text_of(row, 'question')}?\nAnswer:"
    return _choices(text, ["no", "yes"], BOOLEANS[stated])


def _piqa(row: dict) -> Question:
    choices = [text_of(row, "sol1"), text_of(row, "sol2")]
    return _choices(f"Question: {text_of(row, 'goal')}\nAnswer:", choices, _index(row, "label", 2))


def _winogrande(row: dict) -> Question:
    """The choices stand in the text before, and what follows the gap is scored."""
    before, gap, after = text_of(row, "sentence").partition("_")
    if not gap:
        raise NoQuestion("sentence: no gap, _")
    options = [text_of(row, key) for key in ("option1", "option2")]
    rest = after.strip()
    if not rest:
        raise NoQuestion("sentence: nothing behind the gap, which is what is scored")
    return Question(tuple((before + option, rest) for option in options), _index(row, "answer", 2, first=1))


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
    "cmmlu": Form(("Question", *LETTERS), _chinese("Question", "Answer"), _about_cmmlu),
    "ceval": Form(("id", "question", *LETTERS), _chinese("question", "answer"), _about_ceval),
    "hellaswag": Form(("ctx_a", "activity_label", "endings"), _hellaswag),
    "winogrande": Form(("sentence", "option1", "option2"), _winogrande, measures=("acc",)),
    "piqa": Form(("goal", "sol1", "sol2"), _piqa),
    "boolq": Form(("passage", "question"), _boolq, measures=("acc",)),
    "arc": Form(("question", "answerKey"), _arc),
    "mmlu": Form(("question", "answer"), _mmlu, _about_mmlu, measures=("acc",)),
}
