"""Several datasets read as one, in shares that hold at every sample, and the flags that name them with weights."""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import islice
from math import gcd, lcm
from pathlib import Path

import numpy as np

from data_tools.formats.errors import DataError


class BlendedDataset:
    """Datasets dealt into one: after any number of samples each has given its share, rounded up or down.

    The length, an epoch, is that of the longest blend in which no sample comes twice: it ends where the first dataset
    is used up, `samples_used` says how many samples of each are in it. Without weights: each sample of every dataset
    once.

    The samples that an epoch has no place for stand behind it: `blend[i]` with i from len(blend) on.

    Attributes:
        weights: One number a dataset, their ratio counts, taken as the decimal fractions they are written as.
    """

    def __init__(self, datasets: Sequence, weights: Sequence[float] | None = None):
        lengths = [len(dataset) for dataset in datasets]
        weights = whole_numbers(lengths if weights is None else weights)
        component, sample = _dealt(weights, lengths)
        self.datasets = datasets
        self.weights = weights
        self.samples_used = np.bincount(component, minlength=len(datasets))
        self._length = component.size
        left = [np.arange(used, length) for used, length in zip(self.samples_used, lengths, strict=True)]
        numbers = np.arange(len(datasets), dtype=component.dtype)
        self.component = np.concatenate([component, np.repeat(numbers, [samples.size for samples in left])])
        self.sample = np.concatenate([sample, *left])

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: int):
        return self.datasets[self.component[i]][int(self.sample[i])]

    def identity(self) -> dict:
        """Return what the samples and their order depend on."""
        parts = [dataset.identity() for dataset in self.datasets]
        return {"weights": self.weights, "parts": parts, "samples": len(self)}

    def epoch_order(self, seed: int, epoch: int) -> np.ndarray:
        """Return int64[len]: what an epoch of training reads, in this order. Depends on nothing but its arguments.

        The shares hold at every sample here, too. Each dataset is shuffled for itself; one that gives an epoch a part
        of its samples goes on with others in the next, and is shuffled again when too few are left for one more.
        """
        order = np.empty(len(self), dtype=np.int64)
        for number, used in enumerate(self.samples_used.tolist()):
            places = np.flatnonzero(self.component == number)
            shuffle, part = divmod(epoch, places.size // max(used, 1))
            # RandomState: NumPy promises the same stream in all versions, for default_rng it does not.
            permutation = np.random.RandomState([seed, number, shuffle]).permutation(places.size)
            mine = np.flatnonzero(self.component[: len(self)] == number)
            order[mine] = places[permutation[part * used : (part + 1) * used]]
        return order


def deal(weights: Sequence[int]) -> Iterator[int]:
    """Yield endlessly the number of the dataset that gives the next sample.

    With W the sum of the weights, dataset i has given w_i n / W samples after n, rounded up or down, for every n. So
    its sample number j (from 0) is due in one of the turns from floor(j W / w_i) to ceil((j + 1) W / w_i) - 1, counted
    from 0; of those due the one whose last turn comes first is taken. That this always succeeds: Tijdeman, The chairman
    assignment problem, Discrete Mathematics 32 (1980); Steiner and Yeomans, Management Science 39 (1993).
    """
    total = sum(weights)
    due = [(-(-total // weight) - 1, number, 1) for number, weight in enumerate(weights)]
    heapify(due)
    later: list[tuple] = []
    turn = 0
    while True:
        _, number, given = heappop(due)
        yield number
        turn += 1
        first_turn = given * total // weights[number]
        following = (-(-(given + 1) * total // weights[number]) - 1, number, given + 1)
        if first_turn <= turn:
            heappush(due, following)
        else:
            heappush(later, (first_turn, following))
        while later and later[0][0] <= turn:
            heappush(due, heappop(later)[1])


def whole_numbers(weights: Sequence[float]) -> list[int]:
    """Return the smallest whole numbers in the ratio of these numbers, each taken as it is written in decimals."""
    exact = [Fraction(str(weight)) for weight in weights]
    denominator = lcm(*(share.denominator for share in exact))
    scaled = [int(share * denominator) for share in exact]
    return [share // gcd(*scaled) for share in scaled]


def _dealt(weights: list[int], lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return (number of the dataset, number of its sample) of each sample of an epoch.

    The epoch ends where a sample is due that its dataset lacks.
    """
    total = sum(weights)
    enough = min((length + 1) * total // weight for weight, length in zip(weights, lengths, strict=True)) + 1
    period = min(total, enough)  # after `total` samples all begins anew
    pattern = np.fromiter(islice(deal(weights), period), dtype=np.int32, count=period)
    component = np.tile(pattern, -(-enough // period))[:enough]
    sample = np.empty(component.size, dtype=np.int64)
    for number in range(len(weights)):
        mine = np.flatnonzero(component == number)
        sample[mine] = np.arange(mine.size)
    length = int(np.argmax(sample >= np.array(lengths)[component]))
    return component[:length], sample[:length]


def weighted_paths(flag: str, named: str) -> list[tuple[float | None, str]]:
    """Return (weight, path) of each dataset that a flag's value names; weight None for one alone.

    Words are separated by spaces or commas; a path that exists is never split.

    Raises:
        DataError: If weights and paths do not take turns.
    """
    named = named.strip()
    words = [named] if Path(named).exists() else re.split(r"[,\s]+", named)
    if len(words) == 1:
        return [(None, named)]
    weights, paths = words[0::2], words[1::2]
    if len(weights) != len(paths) or not all(_is_weight(weight) for weight in weights):
        raise DataError(
            f"{flag} {named!r}: expected one path, or weights above 0 and paths in turn, such as "
            "`0.7 data/a 0.3 data/b`."
        )
    return [(float(weight), path) for weight, path in zip(weights, paths, strict=True)]


def _is_weight(word: str) -> bool:
    try:
        return 0 < float(word) < float("inf")
    except ValueError:
        return False
