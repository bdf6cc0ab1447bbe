"""How near answers are to their references: BLEU by sacrebleu, ROUGE by rouge-score; Chinese by characters.

All are means in per cent, 100 for equal texts. BLEU is of the whole corpus, ROUGE the mean F1 of the answers.
"""

import re

from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import BLEU

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ebef"
WORDS = re.compile(rf"[{HAN}]|[^\W_{HAN}]+")
ROUGE = ("rouge1", "rouge2", "rougeL")


class Words:
    """rouge-score's own words, letters and digits in lower case, of all alphabets; each Han character by itself."""

    def tokenize(self, text: str) -> list[str]:
        return WORDS.findall(text.lower())


def scores(answers: list[str], references: list[str]) -> dict[str, float]:
    """{"bleu", "rouge1", "rouge2", "rougel"} of answers and what they should be, one for one."""
    chinese = any(re.search(f"[{HAN}]", text) for text in references)
    bleu = BLEU(tokenize="zh" if chinese else "13a").corpus_score(answers, [references])
    scorer = RougeScorer(ROUGE, tokenizer=Words())
    found = [scorer.score(reference, answer) for answer, reference in zip(answers, references, strict=True)]
    means = {name.lower(): 100 * sum(score[name].fmeasure for score in found) / len(found) for name in ROUGE}
    return {"bleu": bleu.score, **means}
