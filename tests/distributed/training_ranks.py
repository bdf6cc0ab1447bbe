"""A model and data for the ranks of benchmarks."""

import json
from pathlib import Path

import numpy as np

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
