"""What a rank does with products in bfloat16, for test_products.py."""

import numpy as np
import paddle

from tests.custom_ops.op_ranks import leaf

SHAPES = (((3, 5, 33), 17), ((1, 64), 48), ((130, 256), 100), ((2, 1), 1))


def rounded(array: np.ndarray) -> np.ndarray:
    """The nearest bfloat16 of float32 numbers, ties to even, in float64."""
    bits = array.astype("float32").view("uint32")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view("float32").astype("float64")


def off_by(found: paddle.Tensor, left: np.ndarray, right: np.ndarray, bias=0.0) -> float:
    """The largest error against float64, in units of what float32 sums of these products may lose."""
    exact, loss = left @ right + bias, (np.abs(left) @ np.abs(right) + np.abs(bias)) * (left.shape[-1] + 2) * 2.0**-24
    assert found.shape == list(exact.shape)
    return float((np.abs(found.numpy() - exact) / loss).max())


def errors() -> list[list[float]]:
    """The errors of y, packed y and the gradients of x, weight and bias, by shape and by order of the weight."""
    from fused_ln import cpu

    from launch.cpu.bfloat16 import BFloat16Products

    found, products = [], BFloat16Products(cpu)
    for number, ((*rows, inputs), outputs) in enumerate(SHAPES):
        random = np.random.default_rng(number)
        arrays = [random.normal(size=size).astype("float32") for size in ((*rows, inputs), (inputs, outputs), outputs)]
        upstream = random.normal(size=(*rows, outputs)).astype("float32")
        x, weight, grad = (rounded(array) for array in (*arrays[:2], upstream))
        flat = x.reshape(-1, inputs), grad.reshape(-1, outputs)
        for transposed in (False, True):
            stored = np.ascontiguousarray(arrays[1].T) if transposed else arrays[1]
            tensors = [leaf(arrays[0]), leaf(stored), leaf(arrays[2])]
            y = products.linear(*tensors, transposed=transposed)
            packed = cpu.packed_product(tensors[0], cpu.pack(tensors[1], transposed), outputs, tensors[2])
            x_grad, weight_grad, bias_grad = paddle.grad(y, tensors, grad_outputs=paddle.to_tensor(upstream))
            weight_grad = weight_grad.t() if transposed else weight_grad
            column = np.ones((1, len(flat[1])))
            found.append([
                off_by(y, x, weight, arrays[2]),
                off_by(packed, x, weight, arrays[2]),
                off_by(x_grad, grad, weight.T),
                off_by(weight_grad, flat[0].T, flat[1]),
                off_by(bias_grad.unsqueeze(0), column, upstream.reshape(-1, outputs).astype("float64")),
            ])  # fmt: skip
    return found


def sharing() -> dict:
    """How often inputs are rounded; what is computed of frozen tensors and in other dtypes; what is refused."""
    from fused_ln import cpu

    from launch.cpu.bfloat16 import BFloat16Products

    products, rounds, multiplied = BFloat16Products(cpu), [], []

    class Counted:
        def bfloat16(self, x):
            rounds.append(1)
            return cpu.bfloat16(x)

        def product(self, *args):
            multiplied.append(1)
            return cpu.product(*args)

    products.compiled = Counted()
    x, weights = leaf(np.ones((4, 8))), [paddle.ones([8, 8]) for _ in range(3)]
    same = [products.linear(x, weight) for weight in weights]
    first = len(rounds)
    with paddle.no_grad():
        x.add_(paddle.ones_like(x))
    changed = products.linear(x, weights[0])
    second = len(rounds)
    multiplied.clear()
    sum(y.sum() for y in same).backward()  # frozen weights: three gradients of x, and no other
    backward = len(multiplied)
    wide = products.linear(x.astype("float64"), weights[0].astype("float64"))
    refused = []
    for call in (
        lambda: cpu.product(x, paddle.ones([7, 8])),
        lambda: cpu.product(x.astype("float64"), weights[0]),
        lambda: cpu.packed_product(x, cpu.pack(paddle.ones([64, 64])), 8),
        lambda: cpu.product(x, weights[0], paddle.ones([7])),
    ):
        try:
            call()
        except (OSError, RuntimeError, ValueError) as error:
            refused.append(str(error))
    return {
        "rounded": [first, second], "changed": float(changed.max()), "backward": backward, "wide": str(wide.dtype),
        "x_grad": float(x.grad.max()), "weight_grad": weights[0].grad is None, "refused": refused,
        "empty": cpu.product(paddle.zeros([0, 8]), weights[0]).shape,
    }  # fmt: skip


def without_products() -> dict:
    """What a run and a model that answers make of an oneDNN without these products."""
    from types import SimpleNamespace

    from launch.errors import UserError
    from launch.prediction.predictor import load_predictor
    from launch.switches import precision
    from launch.training.model import products_on_cpu

    args = SimpleNamespace(bfloat16_products="auto")
    products, obstacle = products_on_cpu(args)
    line = precision.line(
        SimpleNamespace(precision=None, scale_loss=1.0, cpu_fast="auto"), False, False, None, False, obstacle
    )
    found: dict = {"training": [products, args.bfloat16_products, line]}
    for name, call in (
        ("required", lambda: products_on_cpu(SimpleNamespace(bfloat16_products="required"))),
        ("answers", lambda: load_predictor("no model", None, "bfloat16")),
    ):
        try:
            call()
        except UserError as error:
            found[name] = str(error)
    return found


def answers(directory: str, adapter: str | None, algo: str | None) -> dict:
    """Logits of a model that answers in bfloat16 and as a server changes it further, against those in float32."""
    from pathlib import Path

    from fused_ln import cpu

    from launch.adapters.quantization import Format
    from launch.adapters.quantized_layers import use_quantized
    from launch.cpu.kernels import replace_for_answers
    from launch.prediction.predictor import load_predictor

    base = Format(algo) if algo else None
    ids, found = paddle.arange(1, 25).reshape([2, 12]), {}
    with paddle.no_grad():
        for dtype in ("float32", "bfloat16"):
            predictor = load_predictor(directory, Path(adapter) if adapter else None, dtype, base)
            if base:
                use_quantized(predictor.model, base)
            found[dtype] = predictor.model(input_ids=ids)[0]
        packed = [layer.forward for layer in predictor.model.sublayers() if "forward" in vars(layer)]
        replace_for_answers(predictor.model, cpu)
        found["served"] = predictor.model(input_ids=ids)[0]
    largest = float(found["float32"].abs().max())
    off = {name: float((logits - found["float32"]).abs().max()) / largest for name, logits in found.items()}
    return {"layers": len(packed), "off": off, "served": float((found["served"] - found["bfloat16"]).abs().max())}


def facts() -> dict:
    return {"errors": errors(), "sharing": sharing()}
