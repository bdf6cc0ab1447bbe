"""Peak arithmetic of the devices we know, for model FLOP utilisation. No Paddle here."""

# Dense tensor-core rates in FLOP/s for float16/bfloat16 with float32 accumulation, from NVIDIA's datasheets and
# architecture whitepapers (A100: NVIDIA A100 datasheet; V100: Volta whitepaper, SXM2; H100/H200: SXM datasheets,
# half of the figure with sparsity; 4090/3090: Ada and GA102 whitepapers, FP16 with FP32 accumulate; T4: datasheet).
PEAK_HALF = {
    "A100": 312e12,
    "H100": 989e12,
    "H200": 989e12,
    "V100": 125e12,
    "4090": 165.2e12,
    "3090": 71e12,
    "T4": 65e12,
}


def peak_flops(card_name: str) -> float | None:
    """FLOP/s of one card in half precision by its name (as the driver gives it), None for an unknown card."""
    for key, flops in PEAK_HALF.items():
        if key in card_name:
            return flops
    return None
