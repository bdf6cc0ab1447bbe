"""Which samples a rank reads in which step, and how samples become a batch. No Paddle."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from data_tools.dialogues.encoding import IGNORED
from data_tools.dialogues.samples import one_row, pack
from launch.checkpoint.data_ledger import shuffled
from launch.families.encoding import mask_position, prefix_lm_mask, prefix_lm_positions
from launch.families.registry import Family, family_of_config


class SampleStream:
    """A batch sampler for the whole run: epoch after epoch, without a break where one ends and the next begins.

    Position p of the stream is sample `epoch_order(seed, p // n)[p % n]` of a dataset of n samples: the order depends
    on nothing but (seed, epoch), and the position on nothing but the number of samples consumed. One optimizer step
    takes `global_batch` consecutive positions. Accumulation step a of data rank r takes `micro_batch` of them at offset
    (a * data_ranks + r) * micro_batch, so every layout with the same global batch sees the same samples in the same
    step, and each sample is seen exactly once an epoch.

    Default: all.

    Attributes:
        steps: Of the run.
        first_step, start: A run that is resumed made so many steps and consumed so many positions, of which none is
            looked at.
        end: Positions that are used; those of the last step beyond it are padding, None.
        epoch_order: The samples of an epoch in order, from (seed, epoch); default: shuffled.
        positions: Before steps that do not follow from global_batch, set by what reads the samples.
    """

    def __init__(
        self,
        samples: int,
        seed: int,
        micro_batch: int,
        accumulation: int,
        data_rank: int,
        data_ranks: int,
        steps: int,
        end: int | None = None,
        epoch_order: Callable[[int, int], np.ndarray] | None = None,
        first_step: int = 0,
        start: int = 0,
    ):
        self.samples = samples
        self.seed = seed
        self.batch_size = micro_batch  # the name paddle.io.DataLoader reads
        self.accumulation = accumulation
        self.data_rank = data_rank
        self.data_ranks = data_ranks
        self.steps = steps
        self.first_step = first_step
        self.start = start
        self.end = start + (steps - first_step) * self.global_batch if end is None else end
        self.epoch_order = epoch_order or partial(shuffled, samples)
        self.positions: dict[int, int] = {}
        self._orders: dict[int, np.ndarray] = {}  # of the last two epochs; replaced, never changed

    def __len__(self) -> int:
        return self.steps * self.accumulation

    def __iter__(self):
        for step in range(self.first_step, self.steps):
            yield from self.batches_of_step(step)

    def batches_of_step(self, step: int) -> Iterator[list[int | None]]:
        """Yield the micro batches of this rank in a step, 0 the first; first_step or later. None for padding."""
        first = self.start + (step - self.first_step) * self.global_batch
        for batch in range(self.accumulation):
            start = first + (batch * self.data_ranks + self.data_rank) * self.batch_size
            yield [self.sample_at(start + offset) for offset in range(self.batch_size)]

    @property
    def global_batch(self) -> int:
        """Positions of a step, over all data ranks."""
        return self.batch_size * self.accumulation * self.data_ranks

    def position(self, step: int) -> int:
        """Return the position of the stream before a step, 0 the first; first_step or later."""
        even = min(self.start + (step - self.first_step) * self.global_batch, self.end)
        return self.positions.get(step, even)

    def samples_of_step(self, step: int) -> list[int]:
        """Return the samples of all data ranks together in a step, 0 the first, without padding."""
        return [self._sample(position) for position in range(self.position(step), self.position(step + 1))]

    def sample_at(self, position: int) -> int | None:
        """Return the sample at a position of the stream, None for padding."""
        return self._sample(position) if position < self.end else None

    def _sample(self, position: int) -> int:
        epoch, index = divmod(position, self.samples)
        orders = self._orders  # once: the thread that loads batches runs ahead of the one that counts their samples
        if epoch not in orders:
            kept = {max(orders): orders[max(orders)]} if orders else {}
            orders = self._orders = kept | {epoch: self.epoch_order(self.seed, epoch)}
        return int(orders[epoch][index])


class PaddedShard:
    """The evaluation samples of one data rank, in order, padded so that every rank runs equally many batches.

    Collectives inside the forward pass (stage 3, tensor parallel) hang when ranks run unequal numbers of batches. A
    padding position is None: the collator gives it labels that count for nothing.
    """

    def __init__(self, samples: int, micro_batch: int, data_rank: int, data_ranks: int):
        self.batch_size = micro_batch
        self.samples = samples
        self.data_rank = data_rank
        self.data_ranks = data_ranks

    def __len__(self) -> int:
        return math.ceil(self.samples / (self.batch_size * self.data_ranks))

    def __iter__(self):
        for batch in range(len(self)):
            start = (batch * self.data_ranks + self.data_rank) * self.batch_size
            yield [index if index < self.samples else None for index in range(start, start + self.batch_size)]


class PaddedDataset:
    """A dataset that answers for padding positions (None) with `padding`, whose labels count for nothing."""

    def __init__(self, dataset, padding):
        self.dataset = dataset
        self.padding = padding

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int | None):
        return self.padding if index is None else self.dataset[index]


# ---- batches of fine-tuning


class PaddingCollator:
    """A collator of samples of different lengths, padded on the right: {"input_ids", "labels"}, int64 [batch, length].

    Under causal attention no token sees what is to its right, so padding needs no mask. Packed rows get the positions
    of each dialogue, "position_ids", and a mask, "attention_mask" bool [batch, 1, length, length]: True where the token
    of a row may see that of a column, which is of the same dialogue and not to its right. FlashMask gets the end of
    each token's dialogue instead, "attn_mask_startend_row_indices" int32 [batch, length].

    Attributes:
        pad: The id to pad with; its labels count for nothing.
        length: Of every batch, None for its longest sample's, rounded up to a multiple of `multiple`.
        row_ends: Whether packed rows are for FlashMask. shares_rows: whether the samples of a batch are laid into
            fewer rows, no longer than the longest of them, where they fit.
    """

    shares_rows = False

    def __init__(self, pad: int, length: int | None, packed: bool = False, multiple: int = 1, row_ends: bool = False):
        self.values = {"input_ids": pad, "labels": IGNORED}
        self.length = length
        self.packed = packed
        self.multiple = multiple
        self.row_ends = row_ends

    def __call__(self, samples: list[dict]) -> dict:
        """Return the batch of some samples."""
        longest = max(len(sample["labels"]) for sample in samples)
        rows = pack([len(sample["labels"]) for sample in samples], longest) if self.shares_rows else ()
        shared = 0 < len(rows) < len(samples)
        samples = [one_row([samples[number] for number in row]) for row in rows] if shared else samples
        length = self.length or -(-longest // self.multiple) * self.multiple
        spare = [length - len(sample["labels"]) for sample in samples]
        batch = {
            key: np.stack(
                [
                    np.pad(sample[key], (0, size), constant_values=value)
                    for sample, size in zip(samples, spare, strict=True)
                ]
            )
            for key, value in self.values.items()
        }
        if self.packed or shared:
            positions = []  # of an unpacked sample from 0; padding is a sample of its own, so that it sees something
            for sample, size in zip(samples, spare, strict=True):
                own = sample.get("position_ids", np.arange(length - size))
                positions.append(np.concatenate([own, np.arange(size)]))
            batch["position_ids"] = np.stack(positions)
            if self.row_ends:
                batch["attn_mask_startend_row_indices"] = ends(batch["position_ids"])
            else:
                batch["attention_mask"] = apart(batch["position_ids"])
        return batch


def apart(position_ids: np.ndarray) -> np.ndarray:
    """Return bool [batch, 1, length, length]: whether two tokens are of one sample, and the second is not later.

    Args:
        position_ids: int64 [batch, length], 0 where a sample begins.
    """
    sample = np.cumsum(position_ids == 0, axis=1)
    return np.tril(sample[:, :, None] == sample[:, None, :])[:, None]


def ends(position_ids: np.ndarray) -> np.ndarray:
    """Return int32 [batch, length]: the end of each token's sample, the first row that does not see its column.

    Meaning: paddle.nn.functional.flashmask_attention, "Causal Document Mask".

    Args:
        position_ids: As for apart().
    """
    length = position_ids.shape[1]
    begins = np.where(position_ids == 0, np.arange(length), length)[:, 1:]
    later = np.concatenate([begins, np.full((len(begins), 1), length)], axis=1)
    return np.minimum.accumulate(later[:, ::-1], axis=1)[:, ::-1].astype(np.int32)


def padding_share(tokens: np.ndarray, micro_batch: int) -> float:
    """Return the mean share of padding in batches of `micro_batch` samples, each padded to its longest.

    tokens: of each sample. The longest of b samples is the k-th of n by length, or shorter, with probability (k/n)^b.
    """
    reached = (np.arange(len(tokens) + 1) / len(tokens)) ** micro_batch
    longest = float((np.sort(tokens) * np.diff(reached)).sum())
    return 1 - float(tokens.mean()) / longest


def shared_padding(tokens: np.ndarray, micro_batch: int) -> float:
    """Return the share of padding in the first batches where their samples share rows (PaddingCollator.shares_rows)."""
    batches = [
        tokens[start : start + micro_batch] for start in range(0, min(len(tokens), 64 * micro_batch), micro_batch)
    ]
    places = sum(len(pack(batch.tolist(), int(batch.max()))) * int(batch.max()) for batch in batches)
    return 1 - sum(int(batch.sum()) for batch in batches) / places


class PrefixCollator(PaddingCollator):
    """Batches for ChatGLM-6B and GLM, which read a prompt in both directions (launch/families/encoding.py).

    Prompts end with the marks of the family (answer_marks), as in launch/generation: the last one begins the answer.

    Adds "attention_mask" [batch, 1, length, length], of GLM float32, of ChatGLM bool, and "position_ids" int64
    [batch, 2, length]. Samples have one answer each (data_tools.dialogues.encoding).
    """

    def __init__(self, family: Family, pad: int, multiple: int = 1):
        super().__init__(pad, length=None, multiple=multiple)
        self.family = family

    def __call__(self, samples: list[dict]) -> dict:
        """Return the batch with masks and positions."""
        batch = super().__call__(samples)
        length = batch["labels"].shape[1]
        contexts = [max(int(np.argmax(labels != IGNORED)), 1) for labels in batch["labels"]]
        masks = np.stack([prefix_lm_mask(length, context) for context in contexts])
        batch["attention_mask"] = masks.astype(self.family.mask_dtype)
        batch["position_ids"] = np.stack(
            [
                prefix_lm_positions(length, context, mask_position(context, self.family.answer_marks))
                for context in contexts
            ]
        )
        return batch


def collator(config, tokenizer, data_args, sequence_parallel: bool, row_ends: bool = False) -> PaddingCollator:
    """Return the collator of the batches that the model's family reads.

    Args:
        config: The model's, of paddlenlp.
        tokenizer: Of the model.
        data_args: The flags.
        sequence_parallel: Whether lengths are multiples of the ranks.
        row_ends: See PaddingCollator.
    """
    family = family_of_config(config.to_dict())
    if family.attention == "prefix":
        return PrefixCollator(family, pad_id(tokenizer), data_args.pad_to_multiple_of)
    length = data_args.max_length if sequence_parallel else None
    return PaddingCollator(pad_id(tokenizer), length, data_args.zero_padding, data_args.pad_to_multiple_of, row_ends)


def pad_id(tokenizer) -> int:
    """Return an id to fill batches with; nothing depends on the choice."""
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
