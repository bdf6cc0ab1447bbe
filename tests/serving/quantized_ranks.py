"""Models of a server on a quantized base, for test_quantized.py."""

import numpy as np

PROMPT = [5, 9, 20, 31, 7, 45]


def served(directory: str, algos: list[str]) -> dict[str, dict]:
    """How far the logits of each model are from those on the base as it is, and whether all share the same codes."""
    from pathlib import Path

    from launch.adapters.quantization import Format
    from launch.serving.models import load_models

    root = Path(directory)
    adapters = {"lora": root / "lora", "prefix": root / "prefix"}
    plain = load_models("base", str(root / "model"), adapters)
    found = {}
    for algo in algos:
        quantized = load_models("base", str(root / "model"), adapters, format=Format(algo))
        codes = [_codes(one.predictor.model) for one in quantized.values()]
        found[algo] = {
            "distances": {name: _distance(_logits(quantized[name]), _logits(plain[name])) for name in plain},
            "apart": [_distance(_logits(plain["base"]), _logits(plain[name])) for name in adapters],
            "layers": len(codes[0]),
            "shared": all(one == codes[0] for one in codes),
            "weights": _float_weights(quantized["lora"].predictor.model),
        }
    return found


def _logits(served) -> np.ndarray:
    import paddle

    ids = paddle.to_tensor([PROMPT])
    with paddle.no_grad():
        out = served.predictor.model(input_ids=ids, attention_mask=paddle.ones_like(ids))
    return (out[0] if isinstance(out, tuple) else out).numpy()


def _distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Root mean square, relative to the spread of the expected ones."""
    return float(np.sqrt(np.square(found - expected).mean()) / expected.std())


def _codes(model) -> list[int]:
    return [id(layer.packed) for layer in model.sublayers() if hasattr(layer, "packed")]


def _float_weights(model) -> list[str]:
    """Names of linear layers that kept a weight as it was."""
    names = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    return [name for name, _ in model.named_parameters() if name.endswith(tuple(f"{one}.weight" for one in names))]
