"""The dense peak in half precision of a card by the name that its driver gives it."""

import pytest

from launch.devices.cards import TERAFLOPS, peak_flops


def test_every_card_of_the_table_is_found_by_its_name():
    for model, teraflops in TERAFLOPS.items():
        assert peak_flops(f"NVIDIA GeForce RTX {model} 80GB") == teraflops * 1e12, model
        assert 20 < teraflops < 3000


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("Tesla V100-SXM2-16GB", 125),
        ("Tesla V100-PCIE-32GB", 112),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA RTX A6000", 154.8),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA RTX 6000 Ada Generation", 364.2),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 88.2),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 438.9),
        # A card with a word more is another.
        ("Some Future Card", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 5090 D", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA A10G", None),
        ("", None),
    ],
)
def test_a_name_of_a_driver(name, teraflops):
    assert peak_flops(name) == (teraflops and teraflops * 1e12)
