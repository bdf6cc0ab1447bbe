"""Rows of benchmarks as their authors and hubs publish them, in the columns that lm-eval's tasks read.

Whatever a prompt or a score is made of is checked: a damaged row is refused, never asked in another form.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from data_tools.formats.han import is_chinese
from data_tools.formats.json_files import quoted

ABCD, SOLUTIONS, OPTIONS = ("A", "B", "C", "D"), ("sol1", "sol2"), ("option1", "option2")
BOOLEANS = {"false": 0, "true": 1, "0": 0, "1": 1}
BEFORE = "row_before"  # the column of the messages before a chat's last question
UNANSWERABLE = "unanswerable"  # what SQuAD 2.0 wants to hear about a question without an answer
ENDS_WITH_NUMBER = re.compile(r"#### -?\.?[0-9][0-9.,]*\s*$")
# Keys of choices in any benchmark: a form is one only of rows without choices that it does not ask.
CHOICE_KEYS = {"choices", "options", "answer_index", "endings", *SOLUTIONS, *OPTIONS, *"ABCDEFGHIJ"}


class NoQuestion(Exception):
    """Why a row is no question of its form."""


@dataclass(frozen=True)
class Form:
    """The form of a benchmark's rows.

    Attributes:
        keys: Keys that tell it from others, without the keys of the answer, which files for a leaderboard lack.
        texts: Columns that are texts in the row, too.
        read: Returns the other columns that lm-eval's task reads, or raises NoQuestion.
        fits: Tells rows from others with the same keys.
        subjects: Whether the benchmark has some.
    """

    keys: tuple[str, ...]
    texts: tuple[str, ...]
    read: Callable[[dict], dict]
    choices: tuple[str, ...] = ()
    fits: Callable[[dict], bool] = lambda row: True
    subjects: bool = False

    def unasked(self, row: dict) -> list[str]:
        """Return the keys of choices that the form would leave out."""
        asked = (*self.keys, *self.choices)
        return [key for key in row if key in CHOICE_KEYS and key not in asked and row[key] is not None]


def form_of(row: dict) -> str | None:
    """Return the name of the first form that fits a row; forms with more keys stand first."""
    names = (name for name, form in FORMS.items() if row.keys() >= set(form.keys) and form.fits(row))
    return next((name for name in names if not FORMS[name].unasked(row)), None)


def columns(name: str, row: dict) -> dict:
    """Return a row in the columns that lm-eval's task reads. Raises NoQuestion."""
    form = FORMS[name]
    unasked = form.unasked(row)
    if unasked:
        raise NoQuestion(
            f"{unasked[0]}: a choice that {name} does not ask. Take the task of lm-eval that these rows are for "
            "(mmlu_pro=FOLDER, kmmlu=FOLDER), or write one in YAML (docs/evaluate.md)"
        )
    return {key: _text(row, key) for key in form.texts} | form.read(row)


# ---- values of a row; what they are not is a NoQuestion


def _text(row: dict, key: str, blank: bool = False) -> str:
    """Return a text. blank: it may be missing or blank."""
    value = row.get(key)
    if blank and value is None:
        return ""
    if not isinstance(value, str) or not (blank or value.strip()):
        raise NoQuestion(f"{key}: found {_seen(value)}, expected a text{', or none' * blank}")
    return value


def _texts(row: dict, key: str) -> list[str]:
    """Return a list of one or more texts that are not blank."""
    values = row.get(key)
    if not isinstance(values, list) or not values or not all(isinstance(one, str) and one.strip() for one in values):
        raise NoQuestion(f"{key}: found {_seen(values)}, expected a list of texts")
    return values


def _answer(row: dict, key: str, allowed: Sequence[str]) -> str:
    """Return a value that is one of `allowed`.

    The row may have it as a float: pandas writes whole numbers beside missing ones so.
    """
    value, allowed = row.get(key), [*allowed]
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    if text in allowed and not isinstance(value, bool):
        return text
    if value in (None, "", -1, "-1") or value != value:
        raise NoQuestion(f"{key}: no answer, as in files for a leaderboard. Take a split that has them: --split val")
    hint = "; numbers from 1 are those of KMMLU, kmmlu=PATH" if text.isdigit() and allowed == [*ABCD] else ""
    raise NoQuestion(f"{key}: found {_seen(value)}, expected one of {', '.join(allowed)}{hint}")


def _seen(value: object) -> str:
    """Return the beginning of a value, for a message."""
    return quoted(value)


def _lists(values: object, keys: tuple[str, ...]) -> dict | None:
    """Return an object of lists, as hubs have it; None where the value is neither that nor a list of objects.

    Original files have the list.
    """
    if isinstance(values, list) and all(isinstance(one, dict) for one in values):
        return {key: [one.get(key) for one in values] for key in keys}
    return values if isinstance(values, dict) else None


# ---- each benchmark


def _mmlu(row: dict) -> dict:
    if row.get("choices") is None:  # a line of the original CSV files
        return {"choices": [_text(row, key) for key in ABCD], "answer": ABCD.index(_answer(row, "answer", ABCD))}
    choices = _texts(row, "choices")
    if len(choices) != len(ABCD):
        raise NoQuestion(f"choices: found {len(choices)}, expected 4")
    return {"choices": choices, "answer": int(_answer(row, "answer", "0123"))}


def _arc(row: dict) -> dict:
    question, choices = row.get("question"), row.get("choices")
    if isinstance(question, dict):  # the original JSON lines
        question, choices = question.get("stem"), question.get("choices")
    lists = _lists(choices, ("text", "label"))
    if lists is None:
        raise NoQuestion(f"choices: found {_seen(choices)}, expected an object with text and label")
    lists = {key: _texts(lists, key) for key in ("text", "label")}
    if len(lists["text"]) != len(lists["label"]):
        raise NoQuestion(f"choices: {len(lists['text'])} texts and {len(lists['label'])} labels")
    answer = _answer(row, "answerKey", lists["label"])
    return {"question": _text({"question": question}, "question"), "choices": lists, "answerKey": answer}


def _hellaswag(row: dict) -> dict:
    endings = _texts(row, "endings")
    label = _answer(row, "label", [*map(str, range(len(endings)))])
    return {"ctx_b": _text(row, "ctx_b", blank=True), "endings": endings, "label": label}


def _boolq(row: dict) -> dict:
    key = "answer" if row.get("answer") is not None else "label"
    stated = row.get(key)
    return {"label": BOOLEANS[_answer({key: str(stated).lower() if stated is not None else None}, key, [*BOOLEANS])]}


def _gsm8k(row: dict) -> dict:
    if not _ends_with_number(row):
        raise NoQuestion(f"answer: no #### before a number at the end: {row['answer'][-40:]!r}")
    return {}


def _ends_with_number(row: dict) -> bool:
    return isinstance(row["answer"], str) and ENDS_WITH_NUMBER.search(row["answer"]) is not None


def _spans(row: dict) -> dict:
    """Return the right answers, each once; for a question without an answer the word for that."""
    lists = _lists(row.get("answers"), ("text",))
    if lists is None or lists.get("text") is None:
        raise NoQuestion(f"answers: found {_seen(row.get('answers'))}, expected an object with a list text")
    answers = list(dict.fromkeys(_texts(lists, "text"))) if lists["text"] != [] else [UNANSWERABLE, ""]
    return {"title": _text(row, "title", blank=True), "answers": answers}


def _has_spans(row: dict) -> bool:
    return _lists(row["answers"], ("text",)) is not None


def _qa(row: dict) -> dict:
    key = "answers" if "answers" in row else "answer"
    answers = _texts(row, key) if isinstance(row.get(key), list) else [_text(row, key)]
    return {"context": _text(row, "context", blank=True), "answers": answers}


def _has_an_answer(row: dict) -> bool:
    return row.keys().isdisjoint(("passage", "answerKey")) and not row.keys().isdisjoint(("answer", "answers"))


def _pairs(question: str, answer: str) -> Form:
    """Return the columns of a row for fine-tuning."""
    return Form((question, answer), (), lambda row: {"question": _text(row, question), "answers": [_text(row, answer)]})


def _chat(row: dict) -> dict:
    """Return the columns of a dialogue: its last question and answer, and the messages before them."""
    turns = _lists(row["messages"], ("role", "content")) or {}
    roles, contents = ([*one] if isinstance(one := turns.get(key), list) else [] for key in ("role", "content"))
    if _text(row, "system", blank=True) and roles[:1] != ["system"]:
        roles, contents = ["system", *roles], [row["system"], *contents]
    head = 1 if roles[:1] in (["system"], ["developer"]) else 0
    spoken = roles[head:]
    if not spoken or len(roles) != len(contents) or spoken != ["user", "assistant"] * (len(spoken) // 2):
        raise NoQuestion(
            f"messages: found {_seen(turns.get('role'))}, expected the roles user and assistant in turn, up to an "
            "answer, after a system message or none"
        )
    texts = [_text({"content": one}, "content", blank=True) for one in contents[:head]]
    texts += _texts({"content": contents[head:]}, "content")
    *before, question, answer = texts
    said = [{"role": role, "content": text} for role, text in zip(roles, before, strict=False)]
    return {BEFORE: said, "question": question, "answers": [answer]}


def _choices(answer: str, allowed: Sequence[str], *texts: str, kind: type = str, **more) -> Form:
    """Return a question with a column for each choice."""
    return Form(texts, texts, lambda row: {answer: kind(_answer(row, answer, allowed))}, **more)


SPANS = ("context", "question", "answers")
FORMS = {
    "cmrc": Form(SPANS, SPANS[:2], _spans, fits=lambda row: _has_spans(row) and is_chinese(str(row["context"]))),
    "squad": Form(SPANS, SPANS[:2], _spans, fits=_has_spans),
    "gsm8k": Form(("question", "answer"), ("question", "answer"), _gsm8k, fits=_ends_with_number),
    "qa": Form(("question",), ("question",), _qa, fits=_has_an_answer),
    "pairs": _pairs("src", "tgt"),
    "advertisegen": _pairs("content", "summary"),
    "chat": Form(("messages",), (), _chat),
    "cmmlu": _choices("Answer", ABCD, "Question", *ABCD, subjects=True),
    "ceval": _choices("answer", ABCD, "question", *ABCD, subjects=True, fits=lambda row: "id" in row),
    "hellaswag": Form(("ctx_a", "activity_label", "endings"), ("activity_label", "ctx_a"), _hellaswag),
    "winogrande": _choices("answer", "12", "sentence", *OPTIONS),
    "piqa": _choices("label", "01", "goal", *SOLUTIONS, kind=int),
    "boolq": Form(("passage", "question"), ("passage", "question"), _boolq),
    "arc": Form(("question", "answerKey"), (), _arc, ("choices",)),
    "mmlu": Form(("question", "answer"), ("question",), _mmlu, ("choices", *ABCD), subjects=True),
}


def of_articles(whole: dict) -> Iterator[dict]:
    """Yield the rows of SQuAD's and CMRC's original files as hubs have them.

    The files are {"data": [{"title", "paragraphs": [{"context", "qas"}]}]}.
    """
    for article in whole["data"]:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                yield {"title": article.get("title"), "context": paragraph["context"]} | asked
