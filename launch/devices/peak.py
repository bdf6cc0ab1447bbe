"""Peak arithmetic of the cards we know, for model FLOP utilisation and for plans. No Paddle here."""

import re

# By the model as its driver names it: dense tensor-core rates in TFLOP/s for float16 and bfloat16 with float32
# accumulation, half of the figure where a data sheet gives the one with sparsity. GeForce cards of Ampere and later
# accumulate in float32 at half their rate, cards for data centers and workstations at the whole.
TERAFLOPS = {
    # NVIDIA V100 datasheet (SXM2; PCIe; V100S), T4 datasheet
    "V100": 125,
    "V100 PCIE": 112,
    "V100S PCIE": 130,
    "T4": 65,
    # NVIDIA datasheets of A100, A800, A10, A30, A40; GA102 whitepaper v2 (RTX A6000)
    "A100": 312,
    "A800": 312,
    "A10": 125,
    "A30": 165,
    "A40": 149.7,
    "A6000": 154.8,
    # NVIDIA Ampere GA102 whitepaper v2 (3070, 3080, 3090); the others: twice the float32 rate of their specifications,
    # as there
    "3060": 25.5,
    "3060 TI": 32.4,
    "3070": 40.6,
    "3070 TI": 43.5,
    "3080": 59.5,
    "3080 TI": 68.2,
    "3090": 71,
    "3090 TI": 80,
    # NVIDIA datasheets of H100 (SXM5, PCIe, NVL), H200 (SXM5, NVL), H800; H20: as its vendors give it
    "H100": 989,
    "H100 PCIE": 756,
    "H100 NVL": 835,
    "H200": 989,
    "H200 NVL": 835,
    "H800": 989,
    "H800 PCIE": 756,
    "H20": 148,
    # NVIDIA datasheets of L4, L40, L40S, RTX 6000 Ada; L20: as its vendors give it
    "L4": 121,
    "L20": 119.5,
    "L40": 181,
    "L40S": 362,
    "6000 ADA": 364.2,
    # NVIDIA Ada whitepaper v2.02 (4090, 4080); the others: twice the float32 rate of their specifications, as there
    "4060": 30.2,
    "4060 TI": 44.1,
    "4070": 58.3,
    "4070 SUPER": 71,
    "4070 TI": 80.2,
    "4070 TI SUPER": 88.2,
    "4080": 97.5,
    "4080 SUPER": 104.4,
    "4090": 165.2,
    "4090 D": 147.1,
    # NVIDIA RTX Blackwell whitepaper (50 series), RTX PRO Blackwell whitepaper, DGX B200 datasheet (of 8 cards)
    "5070": 61.7,
    "5070 TI": 87.9,
    "5080": 112.6,
    "5090": 209.5,
    "PRO 6000 WORKSTATION": 503.8,
    "PRO 6000 MAX Q WORKSTATION": 438.9,
    "PRO 6000 SERVER": 500,
    "B200": 2250,
}
# Words of a name that say nothing about the rate: maker, series, memory and socket.
SILENT = re.compile(r"NVIDIA|TESLA|GEFORCE|RTX|GPU|BLACKWELL|GENERATION|EDITION|\d+GB?|HBM\w*|SXM\d?")


def peak_flops(card_name: str) -> float | None:
    """FLOP/s of one card in half precision by its name, as the driver gives it, "NVIDIA A100-SXM4-80GB".

    None for an unknown one, also where the name has a word more than a known card's: a laptop's card and a slice of one
    (MIG) are other cards.
    """
    words = [word for word in re.split(r"[\s-]+", card_name.upper()) if word and not SILENT.fullmatch(word)]
    model = " ".join(words)
    found = TERAFLOPS.get(model) or TERAFLOPS.get(model.removesuffix(" PCIE"))
    return found * 1e12 if found else None
