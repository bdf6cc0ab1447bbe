"""What the ranks of the parity tests run: run_pretrain's own main, on models and data made here."""

import json
import os
from pathlib import Path

import numpy as np

SEQUENCE_LENGTH = 32
VOCABULARY = 256


def make_material(directory: str, key_value_heads: int, changes: dict | None = None) -> None:
    """A hidden-64, 4-layer, 4-head LLaMA with random weights, and random ids of a vocabulary of 256. changes: of its
    configuration."""
    from data_tools.formats.tokens.indexed import IndexedWriter
    from launch.families.named_configs import load_config
    from launch.training.model import save_random_model

    root = Path(directory)
    sizes = {"vocab_size": VOCABULARY, "intermediate_size": 128, "num_key_value_heads": key_value_heads}
    (root / "config.json").write_text(json.dumps(load_config("llama-rehearsal") | sizes | (changes or {})))
    save_random_model(str(root / "config.json"), root / "model")
    ids = np.random.default_rng(0)
    with IndexedWriter(root / "corpus", VOCABULARY) as corpus:
        for _ in range(40):
            corpus.add_document(ids.integers(0, VOCABULARY, size=100))


def pretrain(directory: str, output: str, argv: list[str], optimizer: str = "adamw") -> dict:
    """Train by run_pretrain; what this rank saw: the world's size and tests.distributed.observation's facts.

    optimizer "sgd": plain, so that no factor is hidden.
    """
    from launch.run_pretrain import main
    from tests.distributed.observation import Observation

    if optimizer == "sgd":
        train_with_plain_sgd()
    flags = {
        "model_name_or_path": f"{directory}/model",
        "input_dir": f"{directory}/corpus",
        "split": "8,2,0",
        "output_dir": output,
        "max_seq_length": SEQUENCE_LENGTH,
        "max_steps": 10,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "weight_decay": 0.1,
        "do_train": 1,
        "device": "cpu",
        "cpu_fast": "off",
        "report_to": "none",
        "unified_checkpoint": 1,
        "save_steps": 1000,
    }
    observation = Observation()
    main([word for name, value in flags.items() for word in (f"--{name}", str(value))] + argv)
    return {"world": int(os.environ["PADDLE_TRAINERS_NUM"]), **observation.facts}


def train_with_plain_sgd() -> None:
    """Adam divides by the gradient's own size, which hides constant factors in it; plain SGD hides nothing."""
    import paddle
    from paddlenlp.trainer import Trainer

    class PlainSGD(paddle.optimizer.SGD):
        def __init__(self, apply_decay_param_fun=None, **kwargs):
            super().__init__(**kwargs)

    Trainer.get_optimizer_cls_and_kwargs = staticmethod(lambda args: (PlainSGD, {}))
