"""The text of rehearsals: made-up words, the same in every version of Python and on every machine.

So a rehearsal's losses can be compared with stored ones (tests/golden). Of `random` only Random(int).random() is
used, which Python promises never to change, and of arithmetic only what IEEE 754 rounds in one way.
"""

from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from random import Random

SYLLABLES = [
    consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in ("a", "e", "i", "o", "u", "an", "er", "is")
]
SYLLABLES_OF_A_WORD = (1, 3)
WORDS_OF_A_SENTENCE = (3, 18)
SENTENCES_OF_A_DOCUMENT = (5, 40)
WORDS = 4000
DOCUMENTS = 450
SHARES = list(accumulate(1 / rank for rank in range(1, WORDS + 1)))  # of the first words, as in natural languages


def documents() -> Iterator[str]:
    """About 0.6 MB in all."""
    random = Random(1)
    words = ["".join(_some(random, SYLLABLES_OF_A_WORD, lambda: _syllable(random))) for _ in range(WORDS)]
    for _ in range(DOCUMENTS):
        yield " ".join(_some(random, SENTENCES_OF_A_DOCUMENT, lambda: _sentence(random, words))) + "\n"


def _sentence(random: Random, words: list[str]) -> str:
    chosen = _some(random, WORDS_OF_A_SENTENCE, lambda: words[bisect(SHARES, random.random() * SHARES[-1])])
    return f"{' '.join(chosen).capitalize()}."


def _syllable(random: Random) -> str:
    return SYLLABLES[int(random.random() * len(SYLLABLES))]


def _some(random: Random, count: tuple[int, int], make) -> list[str]:
    """As many as make() makes for a random number from count[0] to count[1], both included."""
    first, last = count
    return [make() for _ in range(first + int(random.random() * (last - first + 1)))]
