"""The dense peak in half precision of a card by the name that its driver gives it."""

import pytest

from launch.devices.cards import peak_flops


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("Tesla V100-SXM2-16GB", 125),
        ("Tesla V100-SXM2-32GB", 125),
        ("Tesla V100-PCIE-32GB", 112),
        ("Tesla V100S-PCIE-32GB", 130),
        ("Tesla T4", 65),
        ("A100-SXM4-40GB", 312),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA A100-PCIE-40GB", 312),
        ("NVIDIA A800-SXM4-80GB", 312),
        ("NVIDIA A800 80GB PCIe", 312),
        ("NVIDIA A10", 125),
        ("NVIDIA A30", 165),
        ("NVIDIA A40", 149.7),
        ("NVIDIA RTX A6000", 154.8),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA H200", 989),
        ("NVIDIA H200 NVL", 835),
        ("NVIDIA H800", 989),
        ("NVIDIA H800 PCIe", 756),
        ("NVIDIA H20", 148),
        ("NVIDIA L4", 121),
        ("NVIDIA L20", 119.5),
        ("NVIDIA L40", 181),
        ("NVIDIA L40S", 362),
        ("NVIDIA RTX 6000 Ada Generation", 364.2),
        ("NVIDIA GeForce RTX 3060 Ti", 32.4),
        ("NVIDIA GeForce RTX 3080", 59.5),
        ("NVIDIA GeForce RTX 3090", 71),
        ("NVIDIA GeForce RTX 3090 Ti", 80),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 88.2),
        ("NVIDIA GeForce RTX 4080 SUPER", 104.4),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 4090 D", 147.1),
        ("NVIDIA GeForce RTX 5090", 209.5),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 500),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 503.8),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 438.9),
        ("NVIDIA B200", 2250),
    ],
)
def test_of_a_known_card(name, teraflops):
    assert peak_flops(name) == teraflops * 1e12


@pytest.mark.parametrize(
    "name",
    [
        "Some Future Card",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 5090 D",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA A10G",
        "NVIDIA T400 4GB",
        "Quadro RTX 6000",
        "NVIDIA GeForce RTX 2080",
        "",
    ],
)
def test_a_card_with_a_word_more_is_another(name):
    assert peak_flops(name) is None
