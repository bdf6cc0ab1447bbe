"""The log-probabilities of pairs in padded and in packed batches, for test_preference_batches.py."""

import numpy as np
import paddle

from data_tools.formats.dialogues.encoding import IGNORED
from data_tools.formats.preferences.samples import EncodedPreference, PackedPairs, PairDataset, PreferenceCuts
from launch.training.preferences import collate_pairs
from tests.families.family_ranks import VOCABULARY, build, tiny

SIZES, ROOM = ((4, 3, 5), (2, 6, 1), (5, 2, 2), (3, 7, 4), (2, 1, 3)), 14


def packed_and_padded(names: list[str]) -> dict[str, tuple[list[float], list[float]]]:
    """For each family: the log-probabilities of all chosen and rejected responses, in the order of the packed pairs."""
    return {name: _both(name) for name in names}


def _both(name: str) -> tuple[list[float], list[float]]:
    model = build(name, tiny(name, seq_length=ROOM))
    model.eval()
    random = np.random.default_rng(0)
    samples = [[random.integers(3, VOCABULARY, size).tolist() for size in sizes] for sizes in SIZES]
    whole = [
        EncodedPreference(prompt, responses, True, tuple(sizes))
        for (prompt, *responses), sizes in zip(samples, SIZES, strict=True)
    ]
    dataset = PairDataset(whole, PreferenceCuts(0, 0))
    packed = PackedPairs(dataset, ROOM)
    rows = [packed[number] for number in range(len(packed))]
    together = _sums(model, collate_pairs(rows, pad=0, packed=True))
    alone = collate_pairs([pair for row in rows for pair in row], pad=0)
    numbers = np.tile(np.arange(len(SIZES)), 2)[:, None]
    return together, _sums(model, alone | {"pairs": np.where(alone["labels"] == IGNORED, -1, numbers)})


@paddle.no_grad()
def _sums(model, batch: dict) -> list[float]:
    """Of each pair: of its chosen response, then of its rejected one."""
    labels, pairs = batch.pop("labels"), batch.pop("pairs")
    logits = model(**{key: paddle.to_tensor(value) for key, value in batch.items()}, return_dict=True).logits
    entropy = paddle.nn.CrossEntropyLoss(reduction="none", ignore_index=IGNORED)
    losses = entropy(logits, paddle.to_tensor(labels).unsqueeze(-1)).squeeze(-1).numpy()
    half = len(labels) // 2
    sides = ((losses[:half], pairs[:half]), (losses[half:], pairs[half:]))
    return [float(-loss[number == pair].sum()) for loss, number in sides for pair in range(len(SIZES))]
