"""A small model with a tokenizer, and dialogues, for the tests of fine-tuning."""

import json
from itertools import islice
from pathlib import Path

from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.families.named_configs import load_config
from launch.rehearsal.materials import documents, write_dialogues

VOCABULARY = 384
SIZES = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "intermediate_size": 128}


def make_material(directory: str, key_value_heads: int = 4, initializer_range: float = 0.2) -> None:
    """directory/model, and the rehearsals' dialogues in directory/pairs and directory/chats. For a rank.

    initializer_range: of the weights; the default is ten times as wide as usual, so that a frozen random head leaves
    room for a loss near 0.
    """
    from launch.training.model import save_random_model

    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    sizes = SIZES | {"num_key_value_heads": key_value_heads, "initializer_range": initializer_range}
    (root / "config.json").write_text(json.dumps(load_config("llama-rehearsal") | sizes))
    save_random_model(str(root / "config.json"), root / "model")
    save_tokenizer(root / "model", train_tokenizer(islice(documents(), 50), VOCABULARY))
    write_dialogues(root, dev=64)


def write_first(source: Path, target: Path, count: int, shortest: bool = False) -> Path:
    """target/train.json and target/dev.json with the first (or the shortest) rows of source/train.json, the same."""
    target.mkdir(parents=True)
    lines = (source / "train.json").read_text().splitlines(keepends=True)
    lines = (sorted(lines, key=len) if shortest else lines)[:count]
    for split in ("train", "dev"):
        (target / f"{split}.json").write_text("".join(lines))
    return target


def argv(directory: Path, output: Path, **changes) -> list[str]:
    """Flags of finetune_generation.py: four steps of 8 on the pairs. changes: a list is words that stay whole."""
    flags = {
        "model_name_or_path": directory / "model",
        "dataset_name_or_path": directory / "pairs",
        "output_dir": output,
        "src_length": 48,
        "max_length": 96,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "max_steps": 4,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_steps": 1000,
        "do_train": 1,
        "unified_checkpoint": 1,
        "device": "cpu",
        "cpu_fast": "off",
        "report_to": "none",
    } | changes
    words = {name: value if isinstance(value, list) else str(value).split() for name, value in flags.items()}
    return [word for name, value in words.items() for word in (f"--{name}", *value)]
