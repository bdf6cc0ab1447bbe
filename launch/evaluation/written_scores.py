"""Scores of answers that a model wrote. No Paddle.

Each right answer is tried, and the best counts. exact_match and f1 are those of SQuAD's script, for Chinese of MLQA's;
strict_match and flexible_extract are lm-evaluation-harness's filters of gsm8k; rouge_l and bleu are what rouge-score
and sacrebleu give in fine-tuning (launch/generation/text.py).
Source: https://rajpurkar.github.io/SQuAD-explorer, evaluate-v2.0.py; https://github.com/facebookresearch/MLQA,
mlqa_evaluation_v1.py; https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/tasks/gsm8k.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from data_tools.formats.han import HAN
from launch.generation.text import bleu_scorer, rouge_scorer

ARTICLES = re.compile(r"\b(a|an|the)\b")
STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
NUMBER = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
NOT_OF_NUMBER = re.compile(r",|\$|(?s:.*)#### ")
MEANS = ("strict_match", "flexible_extract", "exact_match", "f1", "rouge_l")  # of a value for each answer
BLEU = "bleu"  # of sums over all answers
ORDERS = 4  # of BLEU's n-grams


class Scores:
    """measures: of MEANS, and BLEU. chinese: whether the answers of the task are."""

    def __init__(self, measures: Sequence[str], chinese: bool):
        self.measures = measures
        self.chinese = chinese

    def of(self, answer: str, right: Sequence[str]) -> dict[str, float | list[int]]:
        """From the name of each measure: 0 to 1; of BLEU the sums that corpus_bleu takes."""
        return {name: getattr(self, f"_{name}")(answer, right) for name in self.measures}

    def _strict_match(self, answer: str, right: Sequence[str]) -> int:
        found = STRICT.search(answer)
        return int(found is not None and _number(found[1]) in map(_number, right))

    def _flexible_extract(self, answer: str, right: Sequence[str]) -> int:
        found = NUMBER.findall(answer)
        return int(bool(found) and _number(found[-1]) in map(_number, right))

    def _exact_match(self, answer: str, right: Sequence[str]) -> int:
        return int(self._words(answer) in map(self._words, right))

    def _f1(self, answer: str, right: Sequence[str]) -> float:
        return max(_f1_of(self._words(answer), self._words(one)) for one in right)

    def _words(self, text: str) -> list[str]:
        """Without letter case, punctuation and articles, which Chinese has not; each Han character is a word there."""
        text = "".join(character for character in text.lower() if not self._is_punctuation(character))
        return re.sub(f"([{HAN}])", r" \1 ", text).split() if self.chinese else ARTICLES.sub(" ", text).split()

    def _is_punctuation(self, character: str) -> bool:
        return character in string.punctuation or self.chinese and unicodedata.category(character).startswith("P")

    def _rouge_l(self, answer: str, right: Sequence[str]) -> float:
        return max(self._rouge.score(one, answer)["rougeL"].fmeasure for one in right)

    @cached_property
    def _rouge(self):
        return rouge_scorer(["rougeL"])

    def _bleu(self, answer: str, right: Sequence[str]) -> list[int]:
        found = self._bleu_of_one.sentence_score(answer, list(right))
        return [*map(int, found.counts), *map(int, found.totals), found.sys_len, found.ref_len]

    @cached_property
    def _bleu_of_one(self):
        return bleu_scorer(self.chinese, of_one=True)


def _number(text: str) -> str:
    return NOT_OF_NUMBER.sub("", text).strip().removesuffix(".").lower()


def _f1_of(words: list[str], right: list[str]) -> float:
    if not words or not right:
        return float(words == right)
    common = sum((Counter(words) & Counter(right)).values())
    return 2 * common / (len(words) + len(right))


def corpus_bleu(sums: np.ndarray) -> float:
    """BLEU of several answers, 0 to 100, by the sum of what Scores gives for each: sacrebleu's, with its smoothing."""
    from sacrebleu.metrics import BLEU

    *counts, answers, references = map(int, sums)
    return BLEU.compute_bleu(counts[:ORDERS], counts[ORDERS:], answers, references, smooth_method="exp").score
