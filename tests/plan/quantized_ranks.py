"""What ranks of the planner's tests measure of quantized weights."""

import paddle

from tests.plan.memory_ranks import allocated, forget_peak, peak


def taken_of_all(cases: list) -> list[dict]:
    """`taken` of each (shape, algo, double_quant)."""
    for algo in ("weight_only_int4", "nf4", "fp4"):  # tables come to the device once
        taken([64, 64], algo, double_quant=algo != "weight_only_int4")
    return [taken(*case) for case in cases]


def taken(shape: list[int], algo: str, double_quant: bool) -> dict:
    """Bytes of a float32 weight of random numbers: packed, and while it is computed from its codes."""
    from launch.adapters.quantization import Format, dequantize, quantize

    weight = paddle.randn(shape)
    before = allocated()
    packed = quantize(weight, Format(algo, double_quant=double_quant))
    kept = allocated() - before
    forget_peak()
    before = allocated()
    dequantize(packed)
    return {"kept": kept, "scratch": peak() - before}


def moved_of_all(cases: list) -> list[float]:
    """Bytes that operators read and write to compute a weight (shape, algo, dtype) from its codes. Views move none."""
    from launch.adapters import quantization
    from launch.adapters.quantized_layers import whole_codes

    views = {"reshape", "flatten", "squeeze", "unsqueeze", "slice", "transpose"}
    moved, stock = [0], {}

    def counted(name, operator):
        def call(*args, **kwargs):
            result = operator(*args, **kwargs)
            results = result if isinstance(result, tuple | list) else [result]
            used = (one for one in (*args, *results) if isinstance(one, paddle.Tensor))
            if name.rstrip("_") not in views:
                moved[0] += sum(int(one.size) * one.element_size() for one in used)
            return result

        return call

    found = []
    for shape, algo, dtype in cases:
        packed = quantization.quantize(paddle.randn(shape).astype(dtype), quantization.Format(algo))
        quantization.dequantize(packed)  # the table is on the device now
        ways = [lambda: quantization.dequantize(packed)]
        if algo == "llm.int8":
            ways.append(lambda: whole_codes(packed, packed.dtype))
        moved[0] = 0
        operators = paddle._C_ops
        stock = {name: one for name, one in vars(operators).items() if callable(one) and not name.startswith("_")}
        for name, one in stock.items():
            setattr(operators, name, counted(name, one))
        for way in ways:
            way()
        for name, one in stock.items():
            setattr(operators, name, one)
        found.append(moved[0] / len(ways))
    return found
