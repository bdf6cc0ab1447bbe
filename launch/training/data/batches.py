"""Samples of fine-tuning to batches. No Paddle."""

import numpy as np

from data_tools.formats.dialogues.encoding import IGNORED


class Collator:
    """Samples of different lengths to one batch, padded on the right: {"input_ids", "labels"}, int64 [batch, length].

    Under causal attention no token sees what is to its right, so padding needs no mask. Packed rows get the positions
    of each dialogue, "position_ids", and a mask, "attention_mask" bool [batch, 1, length, length]: True where the token
    of a row may see that of a column, which is of the same dialogue and not to its right.

    pad: the id to pad with; its labels count for nothing. length: of every batch, None for its longest sample's,
    rounded up to a multiple of `multiple`.
    """

    def __init__(self, pad: int, length: int | None, packed: bool = False, multiple: int = 1):
        self.values = {"input_ids": pad, "labels": IGNORED}
        self.length = length
        self.packed = packed
        self.multiple = multiple

    def __call__(self, samples: list[dict]) -> dict:
        longest = max(len(sample["labels"]) for sample in samples)
        length = self.length or -(-longest // self.multiple) * self.multiple
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
