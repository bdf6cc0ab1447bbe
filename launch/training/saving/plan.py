"""Which rank writes what: each tensor once, by one of the ranks that hold an equal copy of it."""

from collections.abc import Iterable
from dataclasses import dataclass

from launch.checkpoint.ranks import gather
from launch.checkpoint.state.parts import Part
from launch.checkpoint.state.tensors import MODEL, Held
from launch.training.ranks import rank


@dataclass(frozen=True)
class Copy:
    """What a rank says about a tensor that it holds."""

    kind: str
    key: str
    part: Part
    nbytes: int


@dataclass(frozen=True)
class Plan:
    """mine: (kind, key) of what this rank writes. writers: key of each parameter -> the rank that writes it, None
    where a file holds a part of one only."""

    mine: frozenset[tuple[str, str]]
    writers: dict[str, int] | None


def agree_on_writers(held: Iterable[Held]) -> Plan:
    """Called by all ranks together."""
    mine = [Copy(one.kind, one.key, one.part, one.nbytes) for one in held]
    copies = gather(mine)
    writers = divide(copies)
    whole = all(one.part.is_whole for of_rank in copies for one in of_rank if one.kind == MODEL)
    parameters = {one.key: writer for one, writer in writers.items() if one.kind == MODEL}
    return Plan(
        mine=frozenset((one.kind, one.key) for one, writer in writers.items() if writer == rank()),
        writers=parameters if whole else None,
    )


def divide(copies: list[list[Copy]]) -> dict[Copy, int]:
    """{what: the rank that writes it}: of those that hold it, the one that has fewest bytes to write so far.

    copies: what each rank holds. The result depends on nothing else, so all ranks come to the same.
    """
    holders: dict[Copy, list[int]] = {}
    for number, of_rank in enumerate(copies):
        for one in of_rank:
            holders.setdefault(one, []).append(number)
    load = [0] * len(copies)
    writers = {}
    for one, ranks in holders.items():
        writers[one] = min(ranks, key=lambda number: load[number])
        load[writers[one]] += one.nbytes
    return writers
