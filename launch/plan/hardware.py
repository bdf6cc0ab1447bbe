"""The hardware catalogue: what each kind of card holds and does, every number with its source.

    card = card_of_memory(24)        # the kind that GPU_MEMORY_GB=24 means
    card.half_flops, card.sources["half_flops"]

Rates are those of the maker; what a program reaches of them is launch/plan/work.py's.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace

from launch.cpu.matmul import measured_flops
from launch.devices import cards
from launch.devices.cards import TERAFLOPS
from launch.errors import UserError

GIB = 2**30
# Cards report 90 to 100 % of the memory they are named after (a part keeps error-correcting codes).
NAMED_MEMORY_SHARE = 0.9

# Bytes a second in one direction, by generation and lanes: 8 and 16 GT/s a lane, 128 bits of 130 are data.
# PCI Express Base Specification 3.0 and 4.0, section 4.2.2 (128b/130b encoding).
PCIE = {(3, 8): 7.88e9, (3, 16): 15.75e9, (4, 8): 15.75e9, (4, 16): 31.5e9, (5, 8): 31.5e9, (5, 16): 63.0e9}

CUDA_TOTAL = "the total that CUDA reports (cudaMemGetInfo), as PyTorch's out-of-memory messages quote it: {}"
AMPERE = "NVIDIA A100 Tensor Core GPU datasheet, 2021-06"
VOLTA = "NVIDIA V100 datasheet, SXM2, 2020-01"
BLACKWELL = "NVIDIA RTX Blackwell GPU Architecture whitepaper, RTX 5090"
ADA = "NVIDIA Ada GPU Architecture whitepaper v2.02"
GA102 = "NVIDIA Ampere GA102 GPU Architecture whitepaper v2, RTX 3090"
TURING = "NVIDIA T4 datasheet, 2019-03"
REACH = (
    "beside an A100 with the same tool: benchmarks/published_runs.json, first half, and benchmarks/published_nodes.py"
)
HOPPER = "NVIDIA H100 Tensor Core GPU datasheet, SXM5, half of the rate with sparsity"
H200 = "NVIDIA H200 Tensor Core GPU datasheet, SXM5, half of the rate with sparsity"


@dataclass(frozen=True)
class Card:
    """A kind of card, or a CPU.

    Attributes:
        memory_bytes: That CUDA offers to all processes together. named_gb: as its name says.
        memory_bandwidth: Bytes a second. half_flops, full_flops: FLOP/s of dense matrix products in float16 or
            bfloat16 with float32 accumulation, and in float32.
        pcie: (generation, lanes) of its way to host memory.
        nvlink: Bytes a second to the other cards of the machine over NVLink, one direction; 0: there is none.
        reach: Of an A100's shares of its rate (launch/plan/work.py), what products and flash attention reach.
        compute_capability: (8, 0) for an A100, None for a CPU.
        sources: Where each number is from.
    """

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int] | None
    named_gb: int
    memory_bandwidth: float
    half_flops: float
    full_flops: float
    pcie: tuple[int, int]
    sources: dict[str, str] = field(compare=False)
    nvlink: float = 0.0
    reach: tuple[float, float] = (1.0, 1.0)

    @property
    def host_link(self) -> float:
        """Bytes a second to host memory, one direction."""
        return PCIE[self.pcie]

    @property
    def calibrated(self) -> bool:
        """Whether the plans for it are compared with published measurements: docs/plan.md."""
        return self.name.startswith("A100")

    def flops(self, dtype: str) -> float:
        """Return FLOP/s of matrix products in a dtype."""
        return self.full_flops if dtype == "float32" else self.half_flops


def _sources(memory: str, rates: str, **others: str) -> dict[str, str]:
    return {
        "memory_bytes": CUDA_TOTAL.format(memory),
        "memory_bandwidth": rates,
        "half_flops": rates,
        "full_flops": rates,
        "nvlink": f"{rates}: half of NVLink's bandwidth in both directions",
        "pcie": rates,
        "reach": "1: an A100's own shares, and where nothing was measured",
    } | others


CARDS = {
    card.name: card
    for card in [
        Card(
            name="A100-80G",
            named_gb=80,
            compute_capability=(8, 0),
            memory_bytes=int(79.15 * GIB),
            memory_bandwidth=2039e9,
            half_flops=TERAFLOPS["A100"] * 1e12,
            full_flops=19.5e12,
            nvlink=300e9,
            pcie=(4, 16),
            sources=_sources("79.15 GiB", f"{AMPERE}, A100 80GB SXM"),
        ),
        Card(
            name="A100-40G",
            named_gb=40,
            compute_capability=(8, 0),
            memory_bytes=int(39.39 * GIB),
            memory_bandwidth=1555e9,
            half_flops=TERAFLOPS["A100"] * 1e12,
            full_flops=19.5e12,
            nvlink=300e9,
            pcie=(4, 16),
            sources=_sources("39.39 GiB", f"{AMPERE}, A100 40GB SXM"),
        ),
        Card(
            name="V100-32G",
            named_gb=32,
            compute_capability=(7, 0),
            memory_bytes=int(31.74 * GIB),
            memory_bandwidth=900e9,
            half_flops=TERAFLOPS["V100"] * 1e12,
            full_flops=15.7e12,
            nvlink=150e9,
            pcie=(3, 16),
            sources=_sources("31.74 GiB", VOLTA),
        ),
        Card(
            name="V100-16G",
            named_gb=16,
            compute_capability=(7, 0),
            memory_bytes=int(15.77 * GIB),
            memory_bandwidth=900e9,
            half_flops=TERAFLOPS["V100"] * 1e12,
            full_flops=15.7e12,
            nvlink=150e9,
            pcie=(3, 16),
            sources=_sources("15.77 GiB", VOLTA),
        ),
        Card(
            name="4090",
            named_gb=24,
            compute_capability=(8, 9),
            memory_bytes=int(23.64 * GIB),
            memory_bandwidth=1008e9,
            half_flops=TERAFLOPS["4090"] * 1e12,
            full_flops=82.6e12,
            pcie=(4, 16),
            sources=_sources("23.64 GiB", ADA, nvlink="none: PCIe only", pcie="NVIDIA GeForce RTX 4090 specifications"),
        ),
        Card(
            name="3090",
            named_gb=24,
            compute_capability=(8, 6),
            memory_bytes=int(23.69 * GIB),
            memory_bandwidth=936e9,
            half_flops=TERAFLOPS["3090"] * 1e12,
            full_flops=35.6e12,
            pcie=(4, 16),
            sources=_sources("23.69 GiB", GA102, nvlink="none without the bridge, which joins two cards at most"),
        ),
        Card(
            name="T4",
            named_gb=15,
            compute_capability=(7, 5),
            memory_bytes=int(14.75 * GIB),
            memory_bandwidth=300e9,
            half_flops=TERAFLOPS["T4"] * 1e12,
            full_flops=8.1e12,
            pcie=(3, 16),
            sources=_sources("14.75 GiB", TURING, nvlink="none: PCIe only"),
        ),
        Card(
            name="H100",
            named_gb=80,
            compute_capability=(9, 0),
            memory_bytes=int(79.10 * GIB),
            memory_bandwidth=3350e9,
            half_flops=TERAFLOPS["H100"] * 1e12,
            full_flops=67e12,
            nvlink=450e9,
            reach=(0.93, 0.55),
            pcie=(5, 16),
            sources=_sources("79.10 GiB", HOPPER, reach=REACH),
        ),
        Card(
            name="H200",
            named_gb=141,
            compute_capability=(9, 0),
            memory_bytes=int(139.72 * GIB),
            memory_bandwidth=4800e9,
            half_flops=TERAFLOPS["H200"] * 1e12,
            full_flops=67e12,
            nvlink=450e9,
            reach=(0.93, 0.55),
            pcie=(5, 16),
            sources=_sources("139.72 GiB", H200, reach=REACH),
        ),
        Card(
            name="5090",
            named_gb=32,
            compute_capability=(12, 0),
            memory_bytes=int(31.37 * GIB),
            memory_bandwidth=1792e9,
            half_flops=TERAFLOPS["5090"] * 1e12,
            full_flops=104.8e12,
            pcie=(5, 16),
            sources=_sources("31.37 GiB", BLACKWELL, nvlink="none: PCIe only"),
        ),
        Card(
            name="4080",
            named_gb=16,
            compute_capability=(8, 9),
            memory_bytes=int(15.61 * GIB),
            memory_bandwidth=716.8e9,
            half_flops=TERAFLOPS["4080"] * 1e12,
            full_flops=48.7e12,
            pcie=(4, 16),
            sources=_sources("15.61 GiB of an RTX A4000, which has 16 GB, too", ADA, nvlink="none: PCIe only"),
        ),
        Card(
            name="3060",
            named_gb=12,
            compute_capability=(8, 6),
            memory_bytes=int(11.76 * GIB),
            memory_bandwidth=360e9,
            half_flops=TERAFLOPS["3060"] * 1e12,
            full_flops=12.7e12,
            pcie=(4, 16),
            sources=_sources("11.76 GiB", "NVIDIA GeForce RTX 3060 specifications, 12 GB", nvlink="none: PCIe only"),
        ),
        Card(
            name="3080",
            named_gb=10,
            compute_capability=(8, 6),
            memory_bytes=int(9.78 * GIB),
            memory_bandwidth=760e9,
            half_flops=TERAFLOPS["3080"] * 1e12,
            full_flops=29.8e12,
            pcie=(4, 16),
            sources=_sources("9.78 GiB", f"{GA102.removesuffix('3090')}3080", nvlink="none: PCIe only"),
        ),
        Card(
            name="L40S",
            named_gb=45,
            compute_capability=(8, 9),
            memory_bytes=int(44.42 * GIB),
            memory_bandwidth=864e9,
            half_flops=TERAFLOPS["L40S"] * 1e12,
            full_flops=91.6e12,
            pcie=(4, 16),
            sources=_sources(
                "44.42 GiB", "NVIDIA L40S datasheet; half of the rate with sparsity", nvlink="none: PCIe only"
            ),
        ),
        Card(
            name="A6000",
            named_gb=48,
            compute_capability=(8, 6),
            memory_bytes=int(47.46 * GIB),
            memory_bandwidth=768e9,
            half_flops=TERAFLOPS["A6000"] * 1e12,
            full_flops=38.7e12,
            pcie=(4, 16),
            sources=_sources(
                "47.46 GiB of a Quadro RTX 8000, which has 48 GB, too",
                "NVIDIA RTX A6000 datasheet and GA102 whitepaper v2",
                nvlink="none without the bridge, which joins two cards at most",
            ),
        ),
    ]
}

# One rank on one core, where this machine was not measured: no card, but the time model's formulas hold for it, too.
# Its memory is the machine's.
CPU = Card(
    name="CPU",
    named_gb=0,
    compute_capability=None,
    memory_bytes=0,
    memory_bandwidth=10e9,
    half_flops=0.2e12,
    full_flops=0.2e12,
    pcie=(4, 16),
    sources={
        "memory_bytes": "the machine's, which the catalogue does not know",
        "memory_bandwidth": "half of what one AMD EPYC core copies (20 GB/s read and written)",
        "half_flops": "stored in half precision, computed in float32",
        "full_flops": "one AMD EPYC core with AVX-512: 2 cores reach 245 to 424 GFLOP/s (docs/cpu-speed.md)",
        "nvlink": "none: ranks meet in host memory",
        "pcie": "stands for a copy within host memory by one core",
        "reach": "1: the rates are measured ones",
    },
)

# A measured rate is that of large products, of which a step's own reach most; small tensors stay in caches. With the
# kernels of --cpu_fast: a step of 256 x 6 (benchmarks/cpu_training.py, its row without fused_ln).
MEASURED_CPU: dict = {"reach": (1.25, 1.0), "memory_bandwidth": 25e9}


def cpu_of_rank(ranks: int) -> Card:
    """Return the CPU that one of `ranks` ranks of this machine has, by the measured matrix product.

    Where it was not measured (launch/cpu/matmul.py), it is CPU.
    """
    flops = measured_flops()
    if flops is None:
        return CPU
    return replace(CPU, half_flops=flops / ranks, full_flops=flops / ranks, **MEASURED_CPU)


def card_named(name: str) -> Card:
    """Return a kind of card by its name in the catalogue, or the driver's name.

    Raises:
        UserError: For an unknown one, as is a card of that model with less memory: a laptop's, or a slice (MIG).
    """
    words = [word.removeprefix("RTX") for word in re.split(r"[\s-]+", name)]
    of_model = [card for card in CARDS.values() if card.name.partition("-")[0] in words]
    if not of_model or not {"Laptop", "MIG"}.isdisjoint(words):
        raise UserError(f"CARD: found {name!r}, known: {', '.join(CARDS)}.")
    of_size = [card for card in of_model if {f"{card.named_gb}{unit}" for unit in ("", "G", "GB")} & set(words)]
    return (of_size or of_model)[0]  # A100-SXM4 without a size: the first kind of that model


def kind_of(device: cards.DetectedCard) -> Card:
    """Return the kind of a card of this machine.

    One that is not in the catalogue counts as the listed one of the next smaller memory, with its own memory and
    compute capability.
    """
    card = None
    with suppress(UserError):
        card = card_named(device.name)
    if card and device.memory_bytes >= NAMED_MEMORY_SHARE * card.memory_bytes:  # else a 3060 Ti, say, with 8 GB
        return card
    named_gb = round(device.memory_bytes / NAMED_MEMORY_SHARE / GIB)
    return replace(
        card_of_memory(max(named_gb, min(card.named_gb for card in CARDS.values()))),
        name=device.name,
        named_gb=round(device.memory_bytes / GIB),
        memory_bytes=device.memory_bytes,
        compute_capability=device.compute_capability,
    )


def requested_card(name: str | None, memory_gb: int | None) -> Card | None:
    """Return the kind that CARD names, or else GPU_MEMORY_GB means; None where neither is given.

    Raises:
        UserError: For an unknown one, and where the two disagree.
    """
    if not name:
        return card_of_memory(memory_gb) if memory_gb else None
    card = card_named(name)
    if memory_gb and memory_gb != card.named_gb:
        raise UserError(f"CARD={name} has {card.named_gb} GB, not {memory_gb}: leave one out.")
    return card


def card_of_memory(memory_gb: int) -> Card:
    """Return the kind for `memory_gb` GB: the commonest of that size, else the next smaller one.

    80: A100-80G, 40: A100-40G, 32: V100-32G, 24: 4090, 16: V100-16G.

    Raises:
        UserError: Below the smallest.
    """
    exact = [card for card in CARDS.values() if card.named_gb == memory_gb]
    smaller = sorted((card for card in CARDS.values() if card.named_gb < memory_gb), key=lambda card: card.named_gb)
    if not exact and not smaller:
        smallest = min(card.named_gb for card in CARDS.values())
        raise UserError(f"GPU_MEMORY_GB: found {memory_gb}, the smallest card in the catalogue has {smallest}.")
    return exact[0] if exact else smaller[-1]
