"""Several samples in one row, so that little of a batch is padding."""

from bisect import bisect_left, insort
from collections.abc import Sequence


def pack(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Rows of samples, by their numbers: no row has more than `room` tokens, each sample is in one row.

    The longest first, each into the row that it fills best. A sample longer than `room` has a row of its own.
    """
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (tokens that are free, number of the row), ascending
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        place = bisect_left(free, (lengths[number], 0))
        if place == len(free):
            left, row = room, len(rows)
            rows.append([])
        else:
            left, row = free.pop(place)
        rows[row].append(number)
        if left > lengths[number]:
            insort(free, (left - lengths[number], row))
    return rows
