"""The text of answers: decoded, shown while it is made, and compared with references."""

import re
import sys
from collections.abc import Iterable, Mapping

from data_tools.formats.han import HAN, are_chinese

NOTHING: Mapping[int, str] = {}
UNFINISHED = "\ufffd"  # what a decoder gives for the first bytes of a character


class TextStream:
    """Takes the ids of one answer from paddlenlp's generate() as its `streamer`, and prints the text they make."""

    def __init__(self, tokenizer, ends: tuple[int, ...]):
        self.tokenizer = tokenizer
        self.ends = ends
        self.ids: list[int] = []
        self.shown = 0  # characters

    def put(self, ids) -> None:
        """Print the text of new ids.

        Args:
            ids: int64 [1, 1] or [1].
        """
        token = int(ids.reshape([-1])[0])
        if token in self.ends:
            return
        self.ids.append(token)
        text = decode(self.tokenizer, self.ids)
        if not text.endswith(UNFINISHED):
            self._show(text)

    def end(self) -> None:
        """Print the rest of the text."""
        self._show(decode(self.tokenizer, self.ids))
        if self.ids:
            print(flush=True)

    def _show(self, text: str) -> None:
        sys.stdout.write(text[self.shown :])
        sys.stdout.flush()
        self.shown = max(self.shown, len(text))


def decode(tokenizer, ids: list[int], kept: Mapping[int, str] = NOTHING) -> str:
    """Return the text of an answer as it was trained: "a . b" does not become "a. b". kept: of kept_marks()."""
    texts, start = [], 0
    for place, token in enumerate(ids) if kept else ():
        if token in kept:
            texts += [decode(tokenizer, ids[start:place]), kept[token]]
            start = place + 1
    rest = tokenizer.decode(ids[start:], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return "".join([*texts, rest])


def kept_marks(tokenizer, marks: Iterable[str]) -> dict[int, str]:
    """Return the ids of the marks that are special tokens, whose text decode() would leave out."""
    found = {tokenizer.convert_tokens_to_ids(mark): mark for mark in marks}
    return {
        token: mark
        for token, mark in found.items()
        if token is not None and tokenizer.convert_ids_to_tokens(token) == mark and not decode(tokenizer, [token])
    }


def before_first(text: str, ends: tuple[str, ...]) -> str:
    """Return the text before the first of the ends in it."""
    return text[: min((place for end in ends if (place := text.find(end)) >= 0), default=len(text))]


def overlap(text: str, word: str) -> int:
    """Return the length of the longest end of the text that begins the word without completing it."""
    return next((size for size in range(min(len(word) - 1, len(text)), 0, -1) if text.endswith(word[:size])), 0)


# ---- how near answers are to their references

WORDS = re.compile(rf"[{HAN}]|[^\W_{HAN}]+")
ROUGE = ("rouge1", "rouge2", "rougeL")


class Words:
    """rouge-score's own words, letters and digits in lower case, of all alphabets; each Han character by itself."""

    def tokenize(self, text: str) -> list[str]:
        """Return the words of a text, in lower case."""
        return WORDS.findall(text.lower())


def scores(answers: list[str], references: list[str]) -> dict[str, float]:
    """Return {"bleu", "rouge1", "rouge2", "rougel"} of answers against references, in per cent.

    BLEU is of the whole corpus by sacrebleu, ROUGE the mean F1 of the answers by rouge-score. 100 for equal texts.
    """
    from rouge_score.rouge_scorer import RougeScorer  # half a second of imports, only where answers are scored
    from sacrebleu.metrics import BLEU

    bleu = BLEU(tokenize="zh" if are_chinese(references) else "13a").corpus_score(answers, [references])
    scorer = RougeScorer(ROUGE, tokenizer=Words())
    found = [scorer.score(reference, answer) for answer, reference in zip(answers, references, strict=True)]
    means = {name.lower(): 100 * sum(score[name].fmeasure for score in found) / len(found) for name in ROUGE}
    return {"bleu": bleu.score, **means}
