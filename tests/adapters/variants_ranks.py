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
