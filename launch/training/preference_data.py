"""The data of preference tuning: from files to pairs of responses, and from these to batches. No Paddle."""

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from data_tools.dialogues.datasets import survey
from data_tools.dialogues.encoding import IGNORED
from data_tools.preferences.datasets import PreferenceSets, encode_preference_survey, pair_lines
from data_tools.preferences.forms import PreferenceColumns
from data_tools.preferences.samples import Desired, Pair
from launch.errors import UserError
from launch.families.encoding import check_vocabulary, encoding_of, template_lines
from launch.families.registry import family_of_config
from launch.training.batches import PaddingCollator, pad_id

# Takes the place of a sample that is not there (PaddedDataset): none of its labels counts.
_ONE, _NONE = np.zeros(2, dtype=np.int32), np.zeros(0, dtype=np.int32)
NO_PAIR = Pair(_ONE, _NONE, _NONE)
NO_RESPONSE = Desired(_ONE, _NONE, True, _NONE)


def load_preferences(
    data_args, training_args, tokenizer, config, paired: bool = True, whole: bool = False
) -> PreferenceSets:
    """Read and encode all preferences that --dataset_name_or_path names.

    The tokenizer, which is saved with what is trained, then says which chat template that was.

    config: the model's, of paddlenlp. paired: samples are Pair, with zero_padding lists of them; else Desired.
    whole: of PairDataset.

    Raises:
        UserError, DataError: If data or chat template cannot be used, or a token is beyond the vocabulary.
    """
    values = config.to_dict()
    wanted = tuple(
        name for name, needed in (("train", training_args.do_train), ("dev", training_args.do_eval)) if needed
    )
    family = family_of_config(values)
    if family.answer_marks:
        raise UserError(
            f"--model_name_or_path: {family.title} reads a prompt in both directions; batches of preferences are made "
            "for models that read from left to right, such as LLaMA and Qwen2."
        )
    found = survey(
        " ".join(data_args.dataset_name_or_path), wanted, PreferenceColumns(paired=paired), data_args.max_broken_rows
    )
    encodings = cache(partial(encoding_of, data_args, tokenizer, values))
    packed = data_args.max_length if data_args.zero_padding and paired else None
    sets = encode_preference_survey(found, encodings, paired, packed, whole)
    used = [encodings(chat) for chat in sorted({rows.schema.chat for rows in found.files})]
    check_vocabulary((sets.train, sets.dev), config.vocab_size)
    shown = sets.train if sets.train is not None else sets.dev
    decode = partial(tokenizer.decode, clean_up_tokenization_spaces=False)
    lines = template_lines([one.template for one in used], tokenizer, trains=sets.train is not None)
    return PreferenceSets(sets.train, sets.dev, [*sets.lines, *lines, *pair_lines(shown, decode)])


def pair_collator(
    tokenizer, data_args, sequence_parallel: bool, row_ends: bool = False, scored: bool = False
) -> Callable:
    """Return collate_pairs, or collate_scored, by the flags. row_ends: see PaddingCollator."""
    length = data_args.max_length if sequence_parallel else None
    return partial(
        collate_scored if scored else collate_pairs,
        pad=pad_id(tokenizer),
        length=length,
        multiple=data_args.pad_to_multiple_of,
        packed=data_args.zero_padding,
        row_ends=row_ends,
    )


def desired_collator(tokenizer, data_args, sequence_parallel: bool) -> Callable:
    """Return collate_desired by the flags."""
    length = data_args.max_length if sequence_parallel else None
    return partial(collate_desired, pad=pad_id(tokenizer), length=length, multiple=data_args.pad_to_multiple_of)


def collate_pairs(
    samples: Sequence[Pair] | Sequence[list[Pair]],
    pad: int,
    length: int | None = None,
    multiple: int = 8,
    packed: bool = False,
    row_ends: bool = False,
) -> dict[str, np.ndarray]:
    """Return a batch of B samples: {"input_ids", "labels"}, int64 [2 B, n].

    The rows of chosen responses come first, then the rejected ones' in the same order. Labels are shifted by one
    position, IGNORED outside of responses. A row without labels is padding.

    packed: a sample is a list of pairs, NO_PAIR or [NO_PAIR] for none. Adds "position_ids", a mask or the ends of
    samples as PaddingCollator does, and "pairs", bool [2 B, n, pairs of the batch]: whether a label belongs to a pair.
    Its last size is read without waiting for a card. pad, length, multiple, row_ends: of PaddingCollator.
    """
    rows = _rows(samples)
    joined = [_row(parts) for parts in rows]
    batch = PaddingCollator(pad, length, packed, multiple, row_ends)(joined)
    if packed:
        batch["pairs"] = _numbers(batch["labels"], batch["position_ids"], [len(row) for row in rows[: len(samples)]])
    return batch


def collate_scored(
    samples: Sequence[Pair] | Sequence[list[Pair]],
    pad: int,
    length: int | None = None,
    multiple: int = 8,
    packed: bool = False,
    row_ends: bool = False,
) -> dict[str, np.ndarray]:
    """Return a batch for a reward model: {"input_ids", "ends", "tokens"}.

    Its rows are collate_pairs' with the last token of each response. ends, tokens: int64 [2 pairs], of all chosen
    responses, then of the rejected ones in the same order: the end of the response, counted row by row, and its number
    of tokens, 0 for padding.

    The arguments are collate_pairs'.
    """
    rows = _rows(samples)
    texts = [[np.concatenate(part).astype(np.int64) for part in row] for row in rows]
    joined = [
        {
            "input_ids": np.concatenate(row),
            "labels": np.concatenate(row),
            "position_ids": np.concatenate([np.arange(len(text)) for text in row]),
        }
        for row in texts
    ]
    batch = PaddingCollator(pad, length, packed, multiple, row_ends)(joined)
    size = batch.pop("labels").shape[1]
    ends = [number * size + np.cumsum([len(text) for text in row]) - 1 for number, row in enumerate(texts)]
    tokens = [len(response) for row in rows for _, response in row]
    return batch | {"ends": np.concatenate(ends), "tokens": np.array(tokens, dtype=np.int64)}


def collate_desired(
    samples: Sequence[Desired], pad: int, length: int | None = None, multiple: int = 8
) -> dict[str, np.ndarray]:
    """Return a batch of B samples: {"input_ids", "labels"}, int64 [B, n], and {"desired"}, bool [B].

    They are as in collate_pairs.
    """
    rows = [_row([(sample.prompt_ids, sample.response_ids)]) for sample in samples]
    batch = PaddingCollator(pad, length, multiple=multiple)(rows)
    return batch | {"desired": np.array([sample.desired for sample in samples])}


def unrelated(sample: Desired) -> Desired:
    """Return the unrelated response behind the same prompt."""
    return sample._replace(response_ids=sample.unrelated_ids)


def _rows(samples: Sequence[Pair] | Sequence[list[Pair]]) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Return (prompt, response) of each row's pairs: the rows of chosen responses first, then the rejected ones'."""
    rows = [sample if isinstance(sample, list) else [sample] for sample in samples]
    chosen = [[(pair.prompt_ids, pair.chosen_ids) for pair in row] for row in rows]
    return chosen + [[(pair.prompt_ids, pair.rejected_ids) for pair in row] for row in rows]


def _row(parts: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return a sample for PaddingCollator, of prompts and their responses."""
    inputs, labels, positions = [], [], []
    for prompt, response in parts:
        ids = np.concatenate([prompt, response])[:-1].astype(np.int64)
        inputs.append(ids)
        labels += [np.full(len(prompt) - 1, IGNORED), response.astype(np.int64)]
        positions.append(np.arange(len(ids)))
    return {
        "input_ids": np.concatenate(inputs),
        "labels": np.concatenate(labels),
        "position_ids": np.concatenate(positions),
    }


def _numbers(labels: np.ndarray, position_ids: np.ndarray, pairs: list[int]) -> np.ndarray:
    """Return the number of each label's pair. pairs: of each sample. A dialogue begins where position_ids is 0."""
    first = np.cumsum([0, *pairs[:-1]])
    numbers = np.cumsum(position_ids == 0, axis=1) - 1 + np.tile(first, 2)[:, None]
    numbers = np.where(labels != IGNORED, numbers, -1)
    return numbers[..., None] == np.arange(max(numbers.max() + 1, 1))  # a batch of padding has a pair of no tokens
