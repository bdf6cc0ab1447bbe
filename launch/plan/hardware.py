"""The cards we know."""

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True)
class Card:
    """A kind of card.

    memory_bytes: as nvidia-smi shows the total. compute_capability: (8, 0) for an A100
    """

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int]


CARDS = {
    card.name: card
    for card in [
        Card("A100-40G", 40960 * MIB, (8, 0)),
        Card("A100-80G", 81920 * MIB, (8, 0)),
        Card("V100-32G", 32510 * MIB, (7, 0)),
        Card("4090", 24564 * MIB, (8, 9)),
    ]
}
