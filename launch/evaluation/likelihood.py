"""Log-likelihoods of texts under a model, many at once.

scorer = Scorer(predictor, tokens=2048)
requests = [Request(ids=(1, 5, 9), start=2)]
for batch in scorer.batches(requests, share=scorer.shares):
    for number, (value, greedy) in scorer.read(batch, requests, share=scorer.shares): ...
"""

from collections.abc import Iterator

import numpy as np
import paddle

from launch.adapters.adapter_files import ADAPTERS
from launch.adapters.add import PrefixModel
from launch.evaluation.shared_prefixes import PackedRow, ScoredText, rows
from launch.families.family import Family
from launch.generation.generate import require_numbers
from launch.models.rotary_scaling import scaled_by_length
from launch.prediction.logits_in_parts import LogitsInParts
from launch.prediction.predictor import Predictor


class Scorer:
    """The scorer of a model's texts.

    Attributes:
        tokens: Read by the model at once, about.
    """

    def __init__(self, predictor: Predictor, tokens: int):
        model, family, self.tokens = predictor.model, predictor.family, tokens
        base = model.model if isinstance(model, ADAPTERS) else model
        self.shares = shares_prefixes(family, base.config.to_dict()) and not isinstance(model, PrefixModel)
        self.logits = LogitsInParts(model, family)

    def batches(self, requests: list[ScoredText], share: bool) -> Iterator[list[PackedRow]]:
        """Yield rows that are read together: one with all requests that share it, or several with a request each.

        Args:
            share: Many requests begin alike, and the model can read them so; else each has a row of its own, which sees
                less and costs less.
            requests: To score.
        """
        batch: list[PackedRow] = []
        for row in rows(requests, self.tokens, share):
            longest = max(len(other.ids) for other in [*batch, row])
            if batch and (share or longest * (len(batch) + 1) > self.tokens):
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    @paddle.no_grad()
    def read(
        self, batch: list[PackedRow], requests: list[ScoredText], share: bool
    ) -> list[tuple[int, tuple[float, int]]]:
        """Return (number, (natural logarithm of the probability, 1 where the scored ids are the likeliest)) by request.

        The probability is of its scored ids.
        """
        length = max(len(row.ids) for row in batch)
        ids = np.stack([np.pad(row.ids, (0, length - len(row.ids))) for row in batch])
        inputs = {"input_ids": paddle.to_tensor(ids)}
        if share:
            inputs["position_ids"] = paddle.to_tensor(batch[0].positions[None])
            inputs["attention_mask"] = paddle.to_tensor(batch[0].mask())
        places, targets, sizes, numbers = [], [], [], []
        for index, row in enumerate(batch):
            for number, nodes in zip(row.requests, row.nodes, strict=True):
                places += [index * length + node for node in nodes]
                targets += requests[number].ids[requests[number].start :]
                sizes.append(len(nodes))
                numbers.append(number)
        values, greedy = self._log_probabilities(inputs, np.array(places), np.array(targets))
        parts = [slice(end - size, end) for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
        found = [(float(values[part].sum()), int(greedy[part].all())) for part in parts]
        return list(zip(numbers, found, strict=True))

    def _log_probabilities(
        self, inputs: dict, places: np.ndarray, targets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (float64 [scored], whether the target is the most likely id [scored]).

        places: of the flat batch, where a target is predicted; no other logits are computed.
        """
        wanted, where = np.unique(places, return_inverse=True)
        hidden_states = self.logits.read(inputs).index_select(paddle.to_tensor(wanted))
        found, greedy = np.empty(len(targets), dtype=np.float64), np.empty(len(targets), dtype=bool)
        for start, part in self.logits.parts(hidden_states):
            inside = np.flatnonzero((where >= start) & (where < start + part.shape[0]))
            row = paddle.to_tensor(where[inside] - start)
            picked = part.gather_nd(paddle.stack([row, paddle.to_tensor(targets[inside])], axis=1))
            # A sum over a vocabulary in float32 is off by 5e-5 to 3e-4, always to the same side.
            total = paddle.logsumexp(part.astype("float64"), axis=-1).index_select(row)
            found[inside] = (picked.astype("float64") - total).numpy()
            greedy[inside] = part.argmax(axis=-1).index_select(row).numpy() == targets[inside]
            del part  # before the next
        require_numbers(bool(np.isfinite(found).all()))
        return found, greedy


def shares_prefixes(family: Family, config: dict) -> bool:
    """Return whether positions and masks of packed rows suffice for the model to know the place of a token.

    Biases by distance (ALiBi) are counted along the row, learned positions of OPT from the mask, and dynamic scaling
    follows the row's length.
    """
    return family.rotary and not family.alibi and "packing" not in family.lacking and not scaled_by_length(config)
