"""A tiny Baichuan-13B with a tokenizer and dialogues, for test_few_cards.py."""

import json
from itertools import islice
from pathlib import Path

from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.families.named_configs import load_config
from launch.rehearsal.materials import documents, write_dialogues
from tests.training.finetune_material import SIZES, VOCABULARY


def make_baichuan(directory: str) -> None:
    """directory/model, pairs and chats; weights ten times as wide as usual, as finetune_material's."""
    from launch.training.model import save_random_model

    root = Path(directory)
    config = load_config("baichuan-rehearsal") | SIZES | {"initializer_range": 0.2}
    (root / "config.json").write_text(json.dumps(config))
    save_random_model(str(root / "config.json"), root / "model")
    save_tokenizer(root / "model", train_tokenizer(islice(documents(), 50), VOCABULARY))
    write_dialogues(root)
    train = root / "pairs" / "train.json"
    train.write_text("".join(line for line in train.read_text().splitlines(keepends=True) if _repeats_no_word(line)))


def _repeats_no_word(line: str) -> bool:
    """How often a word comes again is what a model whose positions are ALiBi's learns last."""
    words = json.loads(line)["tgt"].rstrip(".").lower().split()
    return len(set(words)) == len(words)
