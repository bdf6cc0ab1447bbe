"""LLM.int8's product in a process of its own, for test_llm_int8.py."""

from unittest.mock import patch

import numpy as np
import paddle

from launch.adapters.quantization import Format, dequantize, quantize
from launch.adapters.quantized_layers import ExactRows, linear, outlier_columns, rounded_product

FORMAT = Format("llm.int8")
SAMPLES, INPUTS, OUTPUTS = 24, 512, 384


def planted(columns: list[int], rows: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [2, SAMPLES / 2, INPUTS] with columns up to 60 among normal numbers, weights with large rows."""
    draw = np.random.default_rng(0)
    inputs = draw.standard_normal((SAMPLES, INPUTS)).clip(-5, 5)
    inputs[:, columns] = draw.uniform(20, 60, (SAMPLES, len(columns))) * draw.choice([-1, 1], (SAMPLES, len(columns)))
    weight = draw.normal(0, 0.02, (INPUTS, OUTPUTS))
    weight[rows] *= 10
    return inputs.reshape(2, -1, INPUTS).astype("float32"), weight.astype("float32")


def errors(columns: list[int], rows: list[int]) -> dict[str, float]:
    """The root mean square of what each way of computing is off by, as a part of the product's own."""
    inputs, values = planted(columns, rows)
    true = inputs.astype("float64") @ values.astype("float64")
    x, weight = paddle.to_tensor(inputs), paddle.to_tensor(values)
    packed, plain = quantize(weight, FORMAT, exact_rows(weight)), quantize(weight, FORMAT)
    one_scale = Tensorwise(inputs).values @ Tensorwise(values).values
    ways = {
        "ours": linear(x, packed).numpy(),
        "rounded rows": linear(x, plain).numpy(),
        "vector-wise": rounded_product(x.reshape([-1, INPUTS]), plain).reshape(true.shape).numpy(),
        "tensor-wise": one_scale,
    }
    return {name: float(np.sqrt(((found - true) ** 2).mean() / (true**2).mean())) for name, found in ways.items()}


class Tensorwise:
    """Absmax in 8 bits with one scale for all."""

    def __init__(self, array: np.ndarray):
        scale = np.abs(array).max() / 127
        self.values = np.round(array.astype("float64") / scale) * scale


def exact_rows(weight: paddle.Tensor) -> ExactRows:
    return ExactRows(lambda columns: weight.index_select(paddle.to_tensor(columns), axis=0), INPUTS, "float16")


def gradients(columns: list[int]) -> dict[str, float]:
    """How far the inputs' gradient is from those of dense layers, as a part of the largest."""
    inputs, values = planted(columns, rows=[])
    weight = paddle.to_tensor(values)
    packed = quantize(weight, FORMAT, exact_rows(weight))
    stands_for = dequantize(packed).numpy()
    stands_for[columns] = values[columns].astype("float16").astype("float32")
    towards = np.random.default_rng(1).standard_normal((*inputs.shape[:2], OUTPUTS)).astype("float32")
    found = gradient(inputs, towards, lambda x: linear(x, packed))
    references = {"the weights it stands for": stands_for, "the weights": values}
    dense = {
        name: gradient(inputs, towards, lambda x: paddle.matmul(x, paddle.to_tensor(one)))
        for name, one in references.items()
    }
    return {name: float(np.abs(found - one).max() / np.abs(one).max()) for name, one in dense.items()}


def gradient(inputs: np.ndarray, towards: np.ndarray, product) -> np.ndarray:
    x = paddle.to_tensor(inputs, stop_gradient=False)
    (product(x) * paddle.to_tensor(towards)).sum().backward()
    return x.grad.numpy()


def columns_found(columns: list[int]) -> list[int]:
    return outlier_columns(paddle.to_tensor(planted(columns, rows=[])[0]))


def columns_apart_of(values: list[float]) -> list[int]:
    """Of inputs whose columns hold one of these numbers each, and zeros."""
    inputs = np.zeros((2, 3, len(values)), "float32")
    inputs[1, 2] = values
    return outlier_columns(paddle.to_tensor(inputs))


def rows_read(wanted: list[list[int]]) -> dict:
    """Which rows are read from the file for each of the calls, and whether the right ones came."""
    weight = paddle.to_tensor(planted([], [])[1])
    read = []

    def reader(columns: list[int]) -> paddle.Tensor:
        read.append(columns)
        return weight.index_select(paddle.to_tensor(columns), axis=0)

    rows = ExactRows(reader, INPUTS, "float16")
    right = [np.array_equal(rows(columns).numpy(), weight.numpy()[columns].astype("float16")) for columns in wanted]
    return {"read": read, "right": right}


def in_half(dtype: str) -> dict:
    """A rounded product in 16 bits, whose matrix product is replaced by one that rounds as a card's does: its operands'
    and its result's dtypes, and the root mean square of what it is off by, as a part of the exact rounded product's."""
    inputs, values = planted([], [])
    packed = quantize(paddle.to_tensor(values), FORMAT)
    stock, seen = paddle.matmul, []

    def matmul(x, y):
        result = stock(x.astype("float32"), y.astype("float32")).astype(x.dtype)
        seen.extend(str(one.dtype) for one in (x, y, result))
        return result

    x = paddle.to_tensor(inputs.reshape(-1, INPUTS)).astype(dtype)
    expected = rounded_product(x.astype("float32"), packed).numpy()
    with patch.object(paddle, "matmul", matmul):
        found = rounded_product(x, packed).astype("float32").numpy()
    off = np.sqrt(((found - expected) ** 2).mean() / (expected**2).mean())
    return {"dtypes": seen, "off": float(off)}


def observe(columns: list[int], rows: list[int], reads: list[list[list[int]]]) -> dict:
    """Return what the functions above find: of columns with outliers and rows of large weights, of calls for rows."""
    return {
        "errors": [errors(columns, []), errors(columns, rows)],
        "gradients": [gradients(columns), gradients([])],
        "columns": [columns_found(columns), columns_found([]), columns_apart_of([5.99, 6.0, -6.0, 0.0, 7.0])],
        "reads": [rows_read(wanted) for wanted in reads],
        "half": {dtype: in_half(dtype) for dtype in ("float16", "bfloat16")},
    }
