"""What ranks of the planner's tests measure of quantised weights."""

import paddle

from tests.plan.memory_ranks import allocated, forget_peak, peak


def taken_of_all(cases: list) -> list[dict]:
    """`taken` of each (shape, algo, double_quant)."""
    return [taken(*case) for case in cases]


def taken(shape: list[int], algo: str, double_quant: bool) -> dict:
    """Bytes of a float32 weight of random numbers: packed, and while it is computed from its codes."""
    from launch.adapters.quantized.quantization import Format, dequantize, quantize

    weight = paddle.randn(shape)
    before = allocated()
    packed = quantize(weight, Format(algo, double_quant=double_quant))
    kept = allocated() - before
    forget_peak()
    before = allocated()
    dequantize(packed)
    return {"kept": kept, "scratch": peak() - before}
