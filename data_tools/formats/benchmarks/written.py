"""Questions that a model answers in its own words, as lm-evaluation-harness asks them.

The prompts and the texts that end an answer are those of its tasks gsm8k and squadv2; cmrc has the prompt of xquad_zh,
qa the texts that end an answer where a task names none. The answers to rows for fine-tuning end where the model ends
them, as in --eval_with_do_generation.
Source: https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/tasks.
"""

import re
from collections.abc import Callable, Iterator

from data_tools.formats.benchmarks.questions import (
    Form,
    NoQuestion,
    Question,
    lists_of,
    seen,
    text_of,
    text_or_none,
    texts_of,
)
from data_tools.formats.han import is_chinese

UNANSWERABLE = "unanswerable"  # what SQuAD 2.0 wants to hear about a question without an answer
ENDS_WITH_NUMBER = re.compile(r"#### -?\.?[0-9][0-9.,]*\s*$")


def _written(text: str, answers: list[str]) -> Question:
    return Question(tuple((text, answer) for answer in answers), 0)


def _gsm8k(row: dict) -> Question:
    answer = text_of(row, "answer")
    if not _ends_with_number(row):
        raise NoQuestion(f"answer: no #### before a number at the end: {answer[-40:]!r}")
    return _written(f"Question: {text_of(row, 'question')}\nAnswer:", [answer])


def _ends_with_number(row: dict) -> bool:
    return isinstance(row["answer"], str) and ENDS_WITH_NUMBER.search(row["answer"]) is not None


def _squad(row: dict) -> Question:
    title = text_or_none(row, "title")
    title = f"Title: {title}\n\n" if title else ""
    text = f"{title}Background: {text_of(row, 'context')}\n\nQuestion: {text_of(row, 'question')}\n\nAnswer:"
    return _written(text, _spans(row))


def _cmrc(row: dict) -> Question:
    text = f"语境: {text_of(row, 'context')}\n\n问题: {text_of(row, 'question')}\n\n回答:"
    return _written(text, _spans(row))


def _spans(row: dict) -> list[str]:
    """The right answers: each once. None, where the row says so, is right as that word, and as nothing at all."""
    lists = lists_of(row.get("answers"), ("text",))
    if lists is None or lists.get("text") is None:
        raise NoQuestion(f"answers: found {seen(row.get('answers'))}, expected an object with a list text")
    return list(dict.fromkeys(texts_of(lists, "text"))) if lists["text"] != [] else [UNANSWERABLE, ""]


def _has_spans(row: dict) -> bool:
    return lists_of(row["answers"], ("text",)) is not None


def _has_chinese_spans(row: dict) -> bool:
    return _has_spans(row) and is_chinese(str(row["context"]))


def _qa(row: dict) -> Question:
    context = text_or_none(row, "context")
    context = f"{context}\n\n" if context else ""
    key = "answers" if "answers" in row else "answer"
    answers = texts_of(row, key) if isinstance(row.get(key), list) else [text_of(row, key)]
    return _written(f"{context}Question: {text_of(row, 'question')}\nAnswer:", answers)


def _pairs(question: str, answer: str) -> Callable[[dict], Question]:
    """Rows for fine-tuning, asked as they are learnt: without further words."""

    def read(row: dict) -> Question:
        return _written(text_of(row, question), [text_of(row, answer)])

    return read


def _has_no_choices(row: dict) -> bool:
    return row.keys().isdisjoint(("choices", "A", "passage", "answerKey")) and not row.keys().isdisjoint(
        ("answer", "answers")
    )


SPANS = ("context", "question", "answers")
OF_TEXTS = ("exact_match", "f1", "rouge_l", "bleu")
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
        measures=OF_TEXTS,
        until=("\n\n",),
        chinese=None,
    ),
    "pairs": Form(("src", "tgt"), _pairs("src", "tgt"), measures=OF_TEXTS, chinese=None),
    "advertisegen": Form(("content", "summary"), _pairs("content", "summary"), measures=OF_TEXTS, chinese=None),
}


def of_articles(whole: dict) -> Iterator[dict]:
    """The rows of SQuAD's and CMRC's original files, {"data": [{"title", "paragraphs": [{"context", "qas"}]}]}, as
    hubs have them."""
    for article in whole["data"]:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                yield {"title": article.get("title"), "context": paragraph["context"]} | asked
