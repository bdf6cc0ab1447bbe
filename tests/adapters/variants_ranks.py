"""The Paddle side of test_variants.py."""

import contextlib

import numpy as np


def noise(path: str, alpha: float, draws: int) -> None:
    """Save what NEFTune adds to a tiny LLaMA's embeddings, in training [draws, 2, 8, hidden] and in evaluation."""
    import paddle

    from launch.training.finetune import add_noise
    from tests.families import family_ranks

    model = family_ranks.build("llama", family_ranks.tiny("llama"))
    ids = paddle.to_tensor(np.arange(16).reshape(2, 8))
    embed = model.llama.embed_tokens
    clean = embed(ids).numpy()
    add_noise(model, alpha)
    model.train()
    added = np.stack([embed(ids).numpy() - clean for _ in range(draws)])
    model.eval()
    np.savez(path, train=added, eval=embed(ids).numpy() - clean)


def weights_at_start(path: str, argv: list[str]) -> None:
    """Begin a run with --pissa 1, and save each layer's frozen weight, lora_A and lora_B before the first step."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    from launch.train import train_method
    from launch.training.trainer import Trainer

    seen = {}

    def train(trainer, *args, **kwargs):
        for name, layer in trainer.model.named_sublayers():
            if isinstance(layer, LoRALinear):
                for kind in ("weight", "lora_A", "lora_B"):
                    seen[f"{name.removeprefix('model.')}.{kind}"] = getattr(layer, kind).numpy()
        raise SystemExit(0)

    Trainer.train = train
    with contextlib.suppress(SystemExit):
        train_method("finetune_generation", argv)
    np.savez(path, **seen)


def dora(path: str, algo: str | None) -> None:
    """Save a layer with DoRA: weight, bias, A, B, magnitude, an input, the output, and gradients for a fixed one."""
    from types import SimpleNamespace

    import paddle

    from launch.adapters.add import add_adapter, base_format
    from launch.adapters.quantization import quantize
    from launch.training.arguments import AdapterArguments
    from tests.families import family_ranks

    flags = AdapterArguments(lora=True, lora_rank=4, lora_alpha=6, dora=True, weight_quantize_algo=algo)
    model = family_ranks.build("qwen2", family_ranks.tiny("qwen2"))
    weight = model.qwen2.layers[0].self_attn.q_proj.weight
    weight.set_value(weight * (paddle.arange(weight.shape[1]) > 0).astype(weight.dtype))  # the first has no length
    if algo:
        weight.packed = quantize(weight, base_format(flags))
    lora, _ = add_adapter(model, SimpleNamespace(model_name_or_path="tiny"), flags, seed=1)
    layer, draw = lora.model.qwen2.layers[0].self_attn.q_proj, np.random.default_rng(0)
    tensors = {name: getattr(layer, name) for name in ("bias", "lora_A", "lora_B", "lora_magnitude")}
    x = paddle.to_tensor(draw.normal(size=(2, 5, layer.lora_A.shape[0])).astype("f4"), stop_gradient=False)
    layer.bias.set_value(draw.normal(size=layer.bias.shape).astype("f4"))
    first = layer(x) - paddle.nn.functional.linear(x, layer.weight, layer.bias)
    for name in ("lora_B", "lora_magnitude"):
        tensors[name].set_value(draw.normal(scale=0.1, size=tensors[name].shape).astype("f4"))
    output = layer(x)
    gradient = draw.normal(size=output.shape).astype("f4")
    (output * paddle.to_tensor(gradient)).sum().backward()
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()} | {
        "weight": layer.weight.numpy(),
        "x": x.numpy(),
    }
    trained = {"x": x} | {name: tensors[name] for name in tensors if name != "bias"}
    gradients = {f"d_{name}": tensor.grad.numpy() for name, tensor in trained.items()}
    np.savez(path, first=first.numpy(), output=output.numpy(), gradient=gradient, **arrays, **gradients)
