"""What benchmarks/serving.py does on a rank: its model, and its texts."""

import json
from pathlib import Path

TOKENIZER_TEXTS = 200


def make_material(directory: str, sizes: dict) -> None:
    """Write a LLaMA of random weights with a tokenizer to directory/model."""
    from itertools import islice

    from data_tools.tokenizer import save_tokenizer, train_tokenizer
    from launch.families.named_configs import load_config
    from launch.rehearsal.materials import documents
    from launch.training.model import save_random_model

    root = Path(directory)
    (root / "config.json").write_text(json.dumps(load_config("llama-rehearsal") | sizes))
    save_random_model(str(root / "config.json"), root / "model")
    save_tokenizer(root / "model", train_tokenizer(islice(documents(), TOKENIZER_TEXTS), sizes["vocab_size"]))


def texts(directory: str, answers: list[list[int]]) -> list[str]:
    """Return the texts that the server would answer for these ids, cut at eos."""
    from paddlenlp.transformers import AutoTokenizer

    from launch.generation.text import decode

    tokenizer = AutoTokenizer.from_pretrained(str(Path(directory) / "model"))
    end = tokenizer.eos_token_id
    return [decode(tokenizer, ids[: ids.index(end)] if end in ids else ids) for ids in answers]
