"""The catalogue: every number has a source, names and sizes find their kind."""

import pytest

from launch.devices.cards import peak_flops
from launch.errors import UserError
from launch.plan.hardware import CARDS, CPU, GIB, PCIE, card_named, card_of_memory
from tests.devices.fake_nvml import KINDS

NUMBERS = ("memory_bytes", "memory_bandwidth", "half_flops", "full_flops", "nvlink", "pcie")


@pytest.mark.parametrize("card", [*CARDS.values(), CPU], ids=lambda card: card.name)
def test_every_number_has_its_source(card):
    assert set(card.sources) == set(NUMBERS)
    assert all(len(source) > 10 for source in card.sources.values())


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_a_card_offers_a_little_less_than_its_name(card):
    assert 0.97 < card.memory_bytes / GIB / card.named_gb < 1.0


def test_a_lane_doubles_its_rate_with_each_generation():
    """8 GT/s in generation 3; 128 bits of 130 are data."""
    for (generation, lanes), rate in PCIE.items():
        assert rate == pytest.approx(8e9 * 2 ** (generation - 3) * lanes * 128 / 130 / 8, rel=1e-3)


def test_all_that_the_issue_names_are_there():
    assert set(CARDS) == {"A100-40G", "A100-80G", "V100-16G", "V100-32G", "4090", "3090", "T4", "H100", "H200"}


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_rates_are_those_of_the_utilisation_that_a_run_reports(card):
    assert peak_flops(card.name) == card.half_flops


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


@pytest.mark.parametrize(
    ("gigabytes", "kind"),
    [(80, "A100-80G"), (40, "A100-40G"), (32, "V100-32G"), (24, "4090"), (16, "V100-16G"), (48, "A100-40G")],
)
def test_a_size_means_a_kind(gigabytes, kind):
    assert card_of_memory(gigabytes).name == kind


def test_a_size_below_all_is_refused():
    with pytest.raises(UserError, match="GPU_MEMORY_GB: found 8"):
        card_of_memory(8)


def test_the_kinds_that_the_checks_know_have_their_capability():
    for kind, (_, _, capability) in KINDS.items():
        if kind in CARDS:
            assert CARDS[kind].compute_capability == capability
