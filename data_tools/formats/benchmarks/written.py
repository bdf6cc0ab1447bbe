"""Questions that a model answers in its own words, as lm-evaluation-harness asks them.

The prompts and the texts that end an answer are those of its tasks gsm8k and squadv2; cmrc has the prompt of xquad_zh,
qa the texts that end an answer where a task names none.
Source: https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/tasks.
"""

import re
from collections.abc import Iterator

from data_tools.formats.benchmarks.questions import Form, NoQuestion, Question, text_of
from data_tools.formats.han import is_chinese

UNANSWERABLE = "unanswerable"  # what SQuAD 2.0 wants to hear about a question without an answer
ENDS_WITH_NUMBER = re.compile(r"#### -?\.?[0-9][0-9.,]*\s*$")


def _written(text: str, answers: list[str]) -> Question:
    return Question(tuple((text, answer) for answer in answers), (), 0)


def _texts(row: dict, key: str) -> list[str]:
    """A text, or a list of them."""
    found = row.get(key)
    values = found if isinstance(found, list) else [found]
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    if not texts or len(texts) < len(values):
        raise NoQuestion(f"{key}: found {found!r}, expected a text or a list of texts")
    return texts


def _gsm8k(row: dict) -> Question:
    answer = text_of(row, "answer")
    if not _ends_with_number(row):
        raise NoQuestion(f"answer: no #### before a number at the end: {answer[-40:]!r}")
    return _written(f"Question: {text_of(row, 'question')}\nAnswer:", [answer])


def _ends_with_number(row: dict) -> bool:
    return isinstance(row["answer"], str) and ENDS_WITH_NUMBER.search(row["answer"]) is not None


def _squad(row: dict) -> Question:
    title = f"Title: {row['title']}\n\n" if row.get("title") else ""
    text = f"{title}Background: {text_of(row, 'context')}\n\nQuestion: {text_of(row, 'question')}\n\nAnswer:"
    return _written(text, _spans(row))


def _cmrc(row: dict) -> Question:
    text = f"语境: {text_of(row, 'context')}\n\n问题: {text_of(row, 'question')}\n\n回答:"
    return _written(text, _spans(row))


def _spans(row: dict) -> list[str]:
    """The right answers: each once. None, where the row says so, is right as that word, and as nothing at all."""
    answers = row["answers"]
    if isinstance(answers, list):  # the original file; a hub's rows have an object of lists
        answers = {"text": [answer["text"] for answer in answers]}
    texts = list(dict.fromkeys(answers["text"]))
    return _texts({"answers": texts}, "answers") if texts else [UNANSWERABLE, ""]


def _has_spans(row: dict) -> bool:
    answers = row["answers"]
    return isinstance(answers, dict) or isinstance(answers, list) and all(isinstance(each, dict) for each in answers)


def _has_chinese_spans(row: dict) -> bool:
    return _has_spans(row) and is_chinese(str(row["context"]))


def _qa(row: dict) -> Question:
    context = f"{text_of(row, 'context')}\n\n" if row.get("context") else ""
    answers = _texts(row, "answers" if "answers" in row else "answer")
    return _written(f"{context}Question: {text_of(row, 'question')}\nAnswer:", answers)


def _has_no_choices(row: dict) -> bool:
    return row.keys().isdisjoint(("choices", "A", "passage", "answerKey")) and not row.keys().isdisjoint(
        ("answer", "answers")
    )


SPANS = ("context", "question", "answers")
WRITTEN = {
    "cmrc": Form(SPANS, _cmrc, fits=_has_chinese_spans, measures=("exact_match", "f1"), until=("\n",), chinese=True),
    "squad": Form(SPANS, _squad, fits=_has_spans, measures=("exact_match", "f1"), until=("\n",)),
    "gsm8k": Form(
        ("question", "answer"),
        _gsm8k,
        fits=_ends_with_number,
        measures=("strict_match", "flexible_extract"),
        until=("Question:", "</s>", "<|im_end|>"),
    ),
    "qa": Form(
        ("question",),
        _qa,
        fits=_has_no_choices,
        measures=("exact_match", "f1", "rouge_l", "bleu"),
        until=("\n\n",),
        chinese=None,
    ),
}


def of_articles(whole: dict) -> Iterator[dict]:
    """The rows of SQuAD's and CMRC's original files, {"data": [{"title", "paragraphs": [{"context", "qas"}]}]}, as
    hubs have them."""
    for article in whole["data"]:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                yield {"title": article.get("title"), "context": paragraph["context"]} | asked
