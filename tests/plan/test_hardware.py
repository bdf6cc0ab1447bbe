"""The catalogue: every number has a source, names and sizes find their kind."""

from dataclasses import replace

import pytest

from launch.devices.cards import peak_flops
from launch.errors import UserError
from launch.plan.hardware import CARDS, CPU, GIB, PCIE, card_named, card_of_memory, kind_of
from tests.devices.fake_nvml import KINDS, card

NUMBERS = ("memory_bytes", "memory_bandwidth", "half_flops", "full_flops", "nvlink", "pcie", "reach")


@pytest.mark.parametrize("card", [*CARDS.values(), CPU], ids=lambda card: card.name)
def test_every_number_has_its_source(card):
    assert set(card.sources) == set(NUMBERS)
    assert all(len(source) > 10 for source in card.sources.values())
    if card is not CPU:
        assert 0.97 < card.memory_bytes / GIB / card.named_gb < 1.0, "a little less than its name says"
        assert peak_flops(card.name) == card.half_flops, "that of the utilisation that a run reports"
        assert card.name not in KINDS or KINDS[card.name][2] == card.compute_capability


def test_a_lane_doubles_its_rate_with_each_generation():
    """8 GT/s in generation 3; 128 bits of 130 are data."""
    for (generation, lanes), rate in PCIE.items():
        assert rate == pytest.approx(8e9 * 2 ** (generation - 3) * lanes * 128 / 130 / 8, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("A100-40G", "A100-40G"),
        ("NVIDIA A100-SXM4-40GB", "A100-40G"),
        ("NVIDIA A100 80GB PCIe", "A100-80G"),
        ("Tesla V100-SXM2-16GB", "V100-16G"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("Tesla T4", "T4"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100", "A100-80G"),
        ("A100-40", "A100-40G"),
        ("RTX4090", "4090"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA GeForce RTX 5090", "5090"),
        ("NVIDIA L40S", "L40S"),
    ],
)
def test_a_card_is_found_by_its_name(name, kind):
    assert card_named(name).name == kind


@pytest.mark.parametrize(
    "name", ["P100", "NVIDIA T400 4GB", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"]
)
def test_an_unknown_name_is_refused(name):
    with pytest.raises(UserError, match=f"CARD: found '{name}', known: A100-80G, A100-40G"):
        card_named(name)


def test_a_size_means_a_kind():
    sizes = {80: "A100-80G", 40: "A100-40G", 32: "V100-32G", 24: "4090", 16: "V100-16G", 48: "A6000", 44: "A100-40G"}
    assert {size: card_of_memory(size).name for size in sizes} == sizes
    with pytest.raises(UserError, match="GPU_MEMORY_GB: found 8"):
        card_of_memory(8)


def test_a_smaller_card_of_nearly_a_name_counts_with_its_own_memory():
    kind = kind_of(replace(card("4090"), name="NVIDIA GeForce RTX 3060 Ti", memory_bytes=8 * GIB))
    assert (kind.name, kind.named_gb, kind.memory_bytes) == ("NVIDIA GeForce RTX 3060 Ti", 8, 8 * GIB)
