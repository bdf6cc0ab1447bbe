"""Are the ids in the token files within the model's vocabulary?"""

import numpy as np

from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.summary import read_summary
from launch.preflight.report import Finding

SAMPLED_BLOCKS = 16
BLOCK_TOKENS = 1 << 18
FIX = "tokenize with the model's own tokenizer, or give the model that the data were made for"


def check_token_ids(corpora: list[IndexedDataset], vocab_size: int) -> list[Finding]:
    """By what the writer of a corpus has recorded, else by a sample: then training reads all ids when it starts."""
    faults, largest, sampled = [], 0, 0
    for corpus in corpora:
        summary = read_summary(corpus)
        sampled += summary is None
        found = largest_of_sample(corpus) if summary is None else summary.largest_id
        largest = max(largest, found)
        if found >= vocab_size:
            told = f"{corpus.tokens_path}: token id {found}, the model has the ids 0 to {vocab_size - 1}"
            faults.append(Finding(False, "ids", told, FIX))
    how = f" ({sampled} of {len(corpora)} corpora sampled: training reads every id when it starts)" if sampled else ""
    return faults or [Finding(True, "ids", f"up to {largest:,} of the model's {vocab_size:,}{how}")]


def largest_of_sample(corpus: IndexedDataset) -> int:
    """The largest id of blocks at even distances, first and last included: of all ids up to 4 M tokens."""
    starts = np.linspace(0, max(0, corpus.tokens.size - BLOCK_TOKENS), SAMPLED_BLOCKS).astype(np.int64)
    return max(int(corpus.tokens[start : start + BLOCK_TOKENS].max()) for start in starts)
