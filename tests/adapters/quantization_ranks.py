"""Quantized weights in a process of their own, for test_quantization.py."""

from unittest.mock import patch

import numpy as np
import paddle
from paddlenlp.transformers.llama.modeling import LlamaLMHead

from launch.adapters import quantization
from launch.adapters import quantized_layers as quantized_base
from launch.adapters import quantized_layers as quantized_product
from launch.adapters.quantization import Format, dequantize, quantize
from launch.families.registry import FAMILIES
from launch.tape import quantized as tape_quantized
from launch.training.chunked_loss import Chunks, chunk_loss
from launch.upstream.token_loss import token_entropies
from tests.families import family_ranks


def observe(jobs: list, algos: list[str]) -> dict:
    """Return what the functions below find: of [values, format, piece], and of formats under mixed precision."""
    weights = [_there_and_back(*job) for job in jobs]
    return {"weights": weights, "random": _random_model(), "head": _output_layers(), "amp": _under_amp(algos)}


def _output_layers() -> dict[str, dict]:
    """By how the loss is computed, an output layer of four parts beside one whose weight is what its codes stand for:
    how far losses and gradients of the inputs are apart; the weights that are left."""
    config = family_ranks.tiny("llama")
    draw = np.random.default_rng(0)
    inputs = paddle.to_tensor(draw.normal(0, 1, [2, 20, config.hidden_size]).astype("float32"))
    labels = paddle.to_tensor(draw.integers(0, config.vocab_size, [2, 20]))
    return {name: _output_layer(config, inputs, labels, *way) for name, *way in WAYS}


WAYS = [("whole", 0, False), ("in chunks", 12, False), ("in chunks, weighed", 12, True)]


def _output_layer(config, inputs: paddle.Tensor, labels: paddle.Tensor, chunk: int, weighed: bool) -> dict:
    found = {}
    for quantized in (True, False):
        model = paddle.nn.Layer()
        paddle.seed(3)
        model.lm_head = LlamaLMHead(config)
        with patch.object(tape_quantized, "PART", 64 * config.hidden_size):
            packed = quantized_base.PackedColumns.of(model.lm_head.weight, Format("nf4", double_quant=True))
        if quantized:
            model.lm_head.weight.packed = packed
            quantized_base.use_quantized_head(model)
            whole = list(model.state_dict())
        else:
            model.lm_head.weight.set_value(paddle.concat([dequantize(part) for part in packed.parts], axis=1))
            model.lm_head.weight.stop_gradient = True
        chunk_loss(model, FAMILIES["llama"], Chunks(chunk, chunk), pipeline=False)
        hidden_states = inputs.detach()
        hidden_states.stop_gradient = False
        if chunk:
            model.lm_head.weighed = weighed
            with model.lm_head.of(labels):
                losses = model.lm_head(hidden_states)
        else:
            losses = token_entropies(model.lm_head(hidden_states), labels, False)
        factors = paddle.linspace(1, 2, 40).reshape(losses.shape) if weighed else paddle.ones_like(losses)
        losses.backward(factors)
        found[quantized] = [losses.flatten().numpy(), hidden_states.grad.numpy()]
    errors = [
        float(np.abs(one - other).max() / np.abs(other).max()) for one, other in zip(*found.values(), strict=True)
    ]
    return {"errors": errors, "parts": len(packed.parts), "left": whole}


def _there_and_back(values: list[list[float]], format: dict, piece: int | None = None) -> dict:
    """{"weight": what becomes of the values, "again": when it is quantized once more, "bits": of each, "rounding": its
    share of the weights, as told}. piece: elements that pass at once."""
    with patch.object(quantization, "PIECE", piece or quantization.PIECE):
        return _packed_and_back(values, format)


def _packed_and_back(values: list[list[float]], format: dict) -> dict:
    weight = paddle.to_tensor(np.array(values, dtype="float32"))
    packed = quantize(weight, Format(**format))
    back = dequantize(packed)
    again = dequantize(quantize(back, Format(**format)))
    changed, whole = packed.squares
    return {
        "weight": back.tolist(),
        "again": again.tolist(),
        "bits": 8 * packed.nbytes / weight.size,
        "rounding": (changed / whole) ** 0.5,
    }


def beside_dense(names: list[str], format: dict) -> dict[str, dict]:
    """A family's model with LoRA on a quantized base, beside the same on the weights that the base stands for."""
    return {name: _beside_dense(name, Format(**format)) for name in names}


def _beside_dense(name: str, format: Format) -> dict:
    family, inputs = FAMILIES[name], family_ranks.batch(FAMILIES[name], samples=4)
    models = []
    for quantized in (True, False):
        model = family_ranks.build(name, family_ranks.tiny(name))
        if not quantized:
            _round_weights(model, family.linear_layers, format)
        lora = family_ranks.with_lora(model, rank=2)
        if quantized:
            for weight, parameter in lora.model.named_parameters():
                if _is_linear_weight(weight, family.linear_layers):
                    parameter.packed = quantize(parameter, format)
            quantized_base.use_quantized(lora.model, format)
        models.append(lora)
    loss, dense_loss = (float(model(**inputs)[0]) for model in models)
    calls = _count_dequantized()
    for model in models:
        model(**inputs)[0].backward()
    trained, dense_trained = ([one for one in model.parameters() if one.grad is not None] for model in models)
    pairs = zip(trained, dense_trained, strict=True)
    return {
        "first_losses_equal": loss == dense_loss,
        "gradients_equal": all(np.array_equal(one.grad.numpy(), other.grad.numpy()) for one, other in pairs),
        "trained": len(trained),
        "weights_left": [one for one in models[0].model.state_dict() if _is_linear_weight(one, family.linear_layers)],
        "computed": len(calls),
        "layers": sum(hasattr(layer, "packed") for layer in models[0].sublayers()),
    }


def _round_weights(model, linear_layers: tuple[str, ...], format: Format) -> None:
    for name, parameter in model.named_parameters():
        if _is_linear_weight(name, linear_layers):
            parameter.set_value(dequantize(quantize(parameter, format)))


def _is_linear_weight(name: str, linear_layers: tuple[str, ...]) -> bool:
    return name.endswith(".weight") and name.split(".")[-2] in linear_layers


def _count_dequantized() -> list:
    calls, stock = [], quantized_product.dequantize

    def counted(packed):
        calls.append(packed)
        return stock(packed)

    quantized_product.dequantize = counted
    return calls


def _under_amp(algos: list[str]) -> dict[str, list]:
    """At which levels of automatic mixed precision codes become numbers, in both passes, where it is on around them.

    On a CPU it casts nothing: what a card would do is known by its level alone.
    """
    weight = paddle.to_tensor(np.random.default_rng(0).normal(0, 0.02, (64, 32)).astype("float32"))
    tracer = paddle.base.framework._dygraph_tracer()
    levels = []

    def watched(function):
        def watching(*args):
            levels.append(str(tracer._amp_level))
            return function(*args)

        return watching

    quantized_product.dequantize = watched(dequantize)
    quantized_product.whole_codes = watched(quantization.whole_codes)
    seen = {}
    for algo in algos:
        packed, x = quantize(weight, Format(algo)), paddle.ones([5, 64])
        x.stop_gradient = False
        levels.clear()
        tracer._amp_level, tracer._amp_dtype = paddle.base.core.AmpLevel.O2, "bfloat16"
        outputs = quantized_product.linear(x, packed)
        outputs.backward(paddle.ones_like(outputs))
        tracer._amp_level = paddle.base.core.AmpLevel.O0
        seen[algo] = [len(levels), *sorted(set(levels))]
    return seen


def _random_model() -> dict:
    """A base with random weights that never was whole in memory: deviations, what is in memory, the peak of making
    it."""
    from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM

    from launch.adapters.quantized_layers import random_model
    from tests.plan.memory_ranks import allocated, forget_peak, peak

    config = LlamaConfig(vocab_size=128, hidden_size=256, intermediate_size=512, num_hidden_layers=8)
    paddle.seed(5)
    before = allocated()
    forget_peak()
    model = random_model(LlamaForCausalLM, config, "float32", Format("weight_only_int8"))
    made, now = peak() - before, allocated() - before
    said = quantized_base.use_quantized(model, Format("weight_only_int8"))
    layers = dict(model.named_sublayers())
    weights = {name: layer.weight for name, layer in layers.items() if getattr(layer, "weight", None) is not None}
    return {
        "deviations": {name.rpartition(".")[2]: float(one.std()) for name, one in weights.items()},
        "linear": 4 * 8 * (4 * 256 * 256 + 3 * 256 * 512),
        "peak": made,
        "now": now,
        "said": said,
        "loss": float(model(paddle.arange(64).reshape([1, 64]), labels=paddle.arange(64).reshape([1, 64]))[0]),
    }
