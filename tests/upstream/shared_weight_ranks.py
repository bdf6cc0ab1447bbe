"""Rank functions of test_shared_weight_counted_twice.py."""

import json
from pathlib import Path

from tests.distributed import training_ranks


def make_tied_material(directory: str) -> None:
    """The material of the parity tests, with one matrix for embedding and head."""
    from launch.training.model import save_random_model

    training_ranks.make_material(directory, key_value_heads=4)
    config = Path(directory) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tie_word_embeddings": True}))
    save_random_model(str(config), Path(directory) / "model")


def pretrain(directory: str, output: str, argv: list[str], corrected: bool) -> None:
    """Three steps by run_pretrain, its log in the output directory."""
    from launch import upstream

    if not corrected:
        upstream.correct.__defaults__ = (
            tuple(name for name in upstream.CORRECTIONS if name != "shared_weight_counted_twice"),
        )
    flags = ["--model_name_or_path", f"{directory}/model", "--max_steps", "3", *argv]
    training_ranks.pretrain(directory, output, flags)
