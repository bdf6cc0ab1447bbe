"""Small corpora that have samples in every split of the recipes."""

from pathlib import Path

import numpy as np

from data_tools.formats.indexed import IndexedWriter


def write_corpus(prefix: str | Path, documents: int = 100, tokens: int = 2100, largest_id: int = 99) -> None:
    """So many documents of so many tokens each, with ids from 0 to largest_id, over and over."""
    with IndexedWriter(prefix, vocab_size=largest_id + 1) as writer:
        for number in range(documents):
            writer.add_document(np.arange(number * tokens, (number + 1) * tokens) % (largest_id + 1))
