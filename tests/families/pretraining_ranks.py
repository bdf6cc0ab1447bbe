"""run_pretrain on tiny models of every family that it takes, for test_pretraining.py."""

import json
from pathlib import Path

import numpy as np

from launch.families.named_configs import load_config
from launch.families.registry import FAMILIES
from tests.families.family_ranks import LENGTH, VOCABULARY, WITHOUT_DROPOUT

GLOBAL_BATCH = 4


def make_materials(directory: str, names: list[str]) -> None:
    """A model directory for each family, and a corpus of random ids."""
    from data_tools.formats.tokens.indexed import IndexedWriter
    from launch.training.model import save_random_model

    root = Path(directory)
    for name in names:
        config = load_config(FAMILIES[name].rehearsal_config)
        config |= {"vocab_size": VOCABULARY} | {key: value for key, value in WITHOUT_DROPOUT.items() if key in config}
        (root / f"{name}.json").write_text(json.dumps(config))
        save_random_model(str(root / f"{name}.json"), root / name)
    ids = np.random.default_rng(0)
    with IndexedWriter(root / "corpus", VOCABULARY) as corpus:
        for _ in range(20):
            corpus.add_document(ids.integers(0, VOCABULARY, size=100))


def pretrain(directory: str, name: str, output: str, argv: list[str]) -> None:
    """Three steps from the weights in directory/name, by run_pretrain's own main."""
    from launch.train import train_method

    flags = {
        "model_name_or_path": f"{directory}/{name}",
        "input_dir": f"{directory}/corpus",
        "split": "10,0,0",
        "output_dir": output,
        "max_seq_length": LENGTH,
        "max_steps": 3,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": GLOBAL_BATCH,
        "do_train": 1,
        "device": "cpu",
        "report_to": "none",
        "unified_checkpoint": 1,
        "save_steps": 1000,
    }
    train_method("run_pretrain", [word for key, value in flags.items() for word in (f"--{key}", str(value))] + argv)
