"""Small corpora that have samples in every split of the recipes, and dialogues."""

import json
from pathlib import Path

import numpy as np

from data_tools.formats.tokens.indexed import IndexedWriter


def write_corpus(prefix: str | Path, documents: int = 100, tokens: int = 2100, largest_id: int = 99) -> None:
    """So many documents of so many tokens each, with ids from 0 to largest_id, over and over."""
    with IndexedWriter(prefix, vocab_size=largest_id + 1) as writer:
        for number in range(documents):
            writer.add_document(np.arange(number * tokens, (number + 1) * tokens) % (largest_id + 1))


def write_dialogues(folder: str | Path, count: int = 4) -> None:
    """folder/train.json and folder/dev.json with so many pairs each."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"src": f"question {number}", "tgt": f"answer {number}"}) + "\n" for number in range(count)]
    for split in ("train", "dev"):
        Path(folder, f"{split}.json").write_text("".join(rows))
