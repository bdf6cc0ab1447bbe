"""The vocabulary of a model that starts from random weights: that of the tokenizer its data were made with."""

import math
from pathlib import Path

from launch.errors import UserError
from launch.families.config_check import TOKENS
from launch.families.tokenizer_files import read_tokenizer

MULTIPLE = 8  # of ids: divides over the usual degrees of tensor parallel, and is what tensor cores like


def fresh_vocabulary(config: dict, values, so_far: int | None = None) -> int | None:
    """The vocab_size that replaces the configuration's; None: it stays. values: the flags by their names, as
    attributes.

    With random weights and a tokenizer in a directory it is the tokenizer's, rounded up to a multiple of 8 and of the
    tensor parallel degree; a published configuration that has it already stays as it is.
    so_far: of the checkpoint that the run continues, which keeps its own: it may be of another degree.
    """
    directory = Path(values.tokenizer_name_or_path or "").expanduser()
    if values.continue_training is not False or not values.tokenizer_name_or_path or not directory.is_dir():
        return None
    if so_far is not None:
        return so_far
    try:
        tokenizer = read_tokenizer(directory)
    except UserError:  # told by the check of the tokenizer
        return None
    if tokenizer is None or tokenizer.size == config["vocab_size"]:
        return None
    multiple = math.lcm(MULTIPLE, max(int(values.tensor_parallel_degree or 1), 1))
    size = -(-tokenizer.size // multiple) * multiple
    stated = [config.get(key) for key in TOKENS]
    ids = [one for value in stated for one in (value if isinstance(value, list) else [value]) if one is not None]
    return None if any(one >= size for one in ids) else size
