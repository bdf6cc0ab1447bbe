"""From the data flags to the samples of fine-tuning."""

from functools import partial

import numpy as np

from data_tools.formats.sft_datasets import Columns, Datasets, encode_survey, survey
from launch.errors import UserError
from launch.training.encoding import encoding_of
from launch.training.pipeline_loss import IGNORED
from launch.training.ranks import first_on_rank_zero


def require_tokenizer(tokenizer):
    """Raises UserError where there is none."""
    if tokenizer is None:
        raise UserError("the model comes without a tokenizer: --tokenizer_name_or_path names the one it was made with.")
    return tokenizer


def open_dialogues(data_args, training_args, tokenizer, config) -> Datasets:
    """Read and encode all dialogues, on rank 0 first.

    Raises UserError when files are missing or broken beyond what is allowed, or a token is beyond the vocabulary.
    """
    wanted = [name for name, needed in (("train", training_args.do_train), ("dev", training_args.do_eval)) if needed]
    columns = Columns(data_args.prompt_column, data_args.response_column)

    encoding = partial(encoding_of, data_args, tokenizer, config.to_dict())

    def open_all() -> Datasets:
        named = " ".join(data_args.dataset_name_or_path)
        found = survey(named, tuple(wanted), columns, data_args.max_broken_rows)
        datasets = encode_survey(found, encoding, data_args.max_length if data_args.zero_padding else None)
        _check_vocabulary(datasets, config.vocab_size)
        return datasets

    return first_on_rank_zero(open_all)


def _check_vocabulary(datasets: Datasets, vocab_size: int) -> None:
    for dataset in (datasets.train, datasets.dev):
        if dataset is not None and dataset.largest_id >= vocab_size:
            raise UserError(
                f"the tokenizer makes id {dataset.largest_id}, but the model has {vocab_size} ids, 0 to "
                f"{vocab_size - 1}: --tokenizer_name_or_path names another model's."
            )


class Collator:
    """Samples of different lengths to one batch, padded on the right: {"input_ids", "labels"}, int64 [batch, length].

    Under causal attention no token sees what is to its right, so padding needs no mask. Packed rows get the positions
    of each dialogue, "position_ids", and a mask, "attention_mask" bool [batch, 1, length, length]: True where the token
    of a row may see that of a column, which is of the same dialogue and not to its right.

    pad: the id to pad with; its labels count for nothing. length: of every batch, None for its longest sample's.
    """

    def __init__(self, pad: int, length: int | None, packed: bool = False):
        self.values = {"input_ids": pad, "labels": IGNORED}
        self.length = length
        self.packed = packed

    def __call__(self, samples: list[dict]) -> dict:
        length = self.length or max(len(sample["labels"]) for sample in samples)
        batch = {
            key: np.stack([_padded(sample[key], length, value) for sample in samples])
            for key, value in self.values.items()
        }
        if self.packed:
            batch["position_ids"] = np.stack([_positions(sample, length) for sample in samples])
            batch["attention_mask"] = apart(batch["position_ids"])
        return batch


def apart(position_ids: np.ndarray) -> np.ndarray:
    """bool [batch, 1, length, length]: whether two tokens are of the same sample, and the second is not the later one.

    position_ids: int64 [batch, length], 0 where a sample begins.
    """
    sample = np.cumsum(position_ids == 0, axis=1)
    return np.tril(sample[:, :, None] == sample[:, None, :])[:, None]


def _positions(sample: dict, length: int) -> np.ndarray:
    """Those of the row, of an unpacked sample from 0; padding is a sample of its own, so that it sees something."""
    size = len(sample["labels"])
    return np.concatenate([sample.get("position_ids", np.arange(size)), np.arange(length - size)])


def _padded(ids: np.ndarray, length: int, value: int) -> np.ndarray:
    return np.pad(ids, (0, length - len(ids)), constant_values=value)
