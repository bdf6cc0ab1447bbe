"""The network between nodes: the catalogue, each number with its source, and how a group of ranks lies on the nodes.

    network_named("ib-hdr"), network_named("25x8:14")      # GB/s of a link, links of a node, microseconds

Rates are those of the maker; what a program reaches of them is launch/plan/work.py's.
"""

import re
from dataclasses import dataclass, field, replace
from math import ceil

from launch.errors import UserError
from launch.plan.hardware import Card

# Seconds that a message takes to another node: NCCL's own estimate for trees and rings of large messages
# (NVIDIA/nccl, src/graph/tuning.cc, hwLatencies of NET, protocol Simple: 14 microseconds).
NCCL_LATENCY = 14e-6
# The same through the kernel's TCP stack: an assumption, ping times between machines of one switch.
TCP_LATENCY = 50e-6
DGX_A100 = "NVIDIA DGX A100 datasheet: 8 ConnectX-6 of 200 Gbit/s"
DGX_H100 = "NVIDIA DGX H100 datasheet: 8 ConnectX-7 of 400 Gbit/s"
DGX_1 = "NVIDIA DGX-1 datasheet, V100: 4 ConnectX-4 of 100 Gbit/s"
GRAND_TETON = "arXiv 2407.21783, section 3.3.1: 400 Gbit/s for each of 8 cards"
MOSAICML = "mosaicml/llm-foundry, scripts/train/benchmarking/README.md: 1600 Gbit/s for 8 A100"
ETHERNET = "IEEE 802.3, one port of a node"


@dataclass(frozen=True)
class Network:
    """The network between nodes.

    Attributes:
        rate: Bytes a second of a link, one direction. links: of a node.
        latency: Seconds of a message to another node.
        source: Where the numbers are from.
        assumed: Whether nobody has named it, so that it is the usual one for the cards.
    """

    name: str
    rate: float
    links: int
    latency: float
    source: str = field(compare=False)
    assumed: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        """Return the network, such as "ib-hdr (8 x 25 GB/s, 14 µs)"."""
        return f"{self.name} ({self.links} x {self.rate / 1e9:g} GB/s, {self.latency * 1e6:g} µs)"


NETWORKS = {
    network.name: network
    for network in [
        Network("ib-ndr", 50e9, 8, NCCL_LATENCY, DGX_H100),
        Network("ib-hdr", 25e9, 8, NCCL_LATENCY, DGX_A100),
        Network("ib-edr", 12.5e9, 4, NCCL_LATENCY, DGX_1),
        Network("roce-400", 50e9, 8, NCCL_LATENCY, GRAND_TETON),
        Network("roce-200", 25e9, 8, NCCL_LATENCY, MOSAICML),
        Network("eth-100", 12.5e9, 1, TCP_LATENCY, ETHERNET),
        Network("eth-25", 3.125e9, 1, TCP_LATENCY, ETHERNET),
        Network("eth-10", 1.25e9, 1, TCP_LATENCY, ETHERNET),
    ]
}
# The network of the maker's own machine with such cards, by the first word of the card's name; others: eth-25.
USUAL = {"A100": "ib-hdr", "H100": "ib-ndr", "H200": "ib-ndr", "V100": "ib-edr"}
WRITTEN = re.compile(r"(\d+(?:\.\d+)?)(?:x(\d+))?(?::(\d+(?:\.\d+)?))?")


def network_named(name: str) -> Network:
    """Return a network by its name in the catalogue, or as GB/s of a link[xLINKS of a node][:MICROSECONDS].

    One link and 14 microseconds where they are not given.

    Raises:
        UserError: For other texts.
    """
    if name in NETWORKS:
        return NETWORKS[name]
    numbers = WRITTEN.fullmatch(name)
    rate, links, latency = numbers.groups() if numbers else ("0", None, None)
    if float(rate) == 0 or links == "0":
        raise UserError(
            f"NETWORK: found {name!r}, known: {', '.join(NETWORKS)}; or the GB/s of a link, the links of a node and "
            "the microseconds of a message, such as NETWORK=25x8:14."
        )
    seconds = float(latency) / 1e6 if latency else NCCL_LATENCY
    return Network(name, float(rate) * 1e9, int(links or 1), seconds, "NETWORK=")


NETWORK_HELP = f"network between nodes: {', '.join(NETWORKS)}, or GB/s of a link[xLINKS][:MICROSECONDS]"


def network_of(name: str, card: Card | None) -> Network:
    """Return the named network, else the usual one of such cards.

    Raises:
        UserError: For an unknown name.
    """
    if name:
        return network_named(name)
    usual = USUAL.get(card.name.partition("-")[0], "eth-25") if card else "eth-25"
    return replace(NETWORKS[usual], assumed=True)


@dataclass(frozen=True)
class Group:
    """Ranks that exchange data.

    Attributes:
        nodes: On how many nodes they lie, evenly.
    """

    ranks: int
    nodes: int

    @classmethod
    def of(cls, ranks: int, stride: int, cards: int) -> "Group":
        """Return the group of every `stride`-th rank, on nodes with `cards` cards."""
        inside = min(ranks, max(1, cards // stride))
        return cls(ranks, ceil(ranks / inside))

    @property
    def share_between(self) -> float:
        """The share of a rank's messages that crosses nodes where a collective first runs inside the nodes.

        In a ring over n ranks each sends (n - 1) / n of a tensor. With i = n / k ranks on each of k nodes, (i - 1) / i
        of the tensor stay inside, and (k - 1) / k of the i-th part that each rank then has cross: together as much.
        """
        return (self.nodes - 1) / (self.ranks - 1) if self.nodes > 1 else 0.0
