"""Log-likelihoods of texts under a model, many at once.

scorer = Scorer(predictor, tokens=2048)
for number, value in scorer.scores([Request(ids=(1, 5, 9), start=2)]): ...
"""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import paddle

from launch.adapters.adapter_files import ADAPTERS
from launch.adapters.add import PrefixModel
from launch.errors import UserError
from launch.evaluation.shared_prefixes import Request, Row, rows
from launch.families.family import Family
from launch.models.rotary_scaling import scaled_by_length
from launch.prediction.predictor import Predictor
from launch.training.chunked_loss import output_layer

LOGITS = 1 << 26  # that are taken to float32 at once: 256 MiB


class Scorer:
    """tokens: that the model reads at once, about."""

    def __init__(self, predictor: Predictor, tokens: int):
        family = predictor.family
        self.model, self.family, self.tokens = predictor.model, family, tokens
        base = self.model.model if isinstance(self.model, ADAPTERS) else self.model
        whole = shares_prefixes(family, base.config.to_dict())
        self.shares = whole and not isinstance(self.model, PrefixModel)
        head = output_layer(base, family.head.path, pipeline=False)
        assert head is not None, "no pipeline"
        self.head = head

    def scores(self, requests: list[Request]) -> Iterator[tuple[int, float]]:
        """(number of a request, natural logarithm of the probability of its scored ids), as they are computed."""
        waiting: list[Row] = []
        for row in rows(requests, self.tokens, self.shares):
            longest = max(len(other.ids) for other in [*waiting, row])
            if waiting and (self.shares or longest * (len(waiting) + 1) > self.tokens):
                yield from self._read(waiting, requests)
                waiting = []
            waiting.append(row)
        if waiting:
            yield from self._read(waiting, requests)

    @paddle.no_grad()
    def _read(self, batch: list[Row], requests: list[Request]) -> list[tuple[int, float]]:
        length = max(len(row.ids) for row in batch)
        ids = np.stack([np.pad(row.ids, (0, length - len(row.ids))) for row in batch])
        inputs = {"input_ids": paddle.to_tensor(ids)}
        if self.shares:
            inputs["position_ids"] = paddle.to_tensor(batch[0].positions[None])
            inputs["attention_mask"] = paddle.to_tensor(batch[0].mask())
        places, targets, sizes, numbers = [], [], [], []
        for index, row in enumerate(batch):
            for number, nodes in zip(row.requests, row.nodes, strict=True):
                places += [index * length + node for node in nodes]
                targets += requests[number].ids[requests[number].start :]
                sizes.append(len(nodes))
                numbers.append(number)
        values = self._log_probabilities(inputs, np.array(places), np.array(targets))
        ends = np.cumsum(sizes)
        return [
            (number, float(values[end - size : end].sum()))
            for number, size, end in zip(numbers, sizes, ends, strict=True)
        ]

    def _log_probabilities(self, inputs: dict, places: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """float64 [scored]. places: of the flat batch, where a target is predicted; the head computes no others."""
        wanted, where = np.unique(places, return_inverse=True)
        chosen = paddle.to_tensor(wanted)

        def choose(_, arguments):
            hidden = arguments[0]
            if self.family.head.reads_length_first:
                hidden = hidden.transpose([1, 0, 2])
            hidden = hidden.reshape([-1, hidden.shape[-1]]).index_select(chosen)
            return (hidden[:, None] if self.family.head.reads_length_first else hidden[None], *arguments[1:])

        hook = self.head.register_forward_pre_hook(cast(Any, choose))  # its stub knows one tensor only
        try:
            outputs = self.model(**inputs)
        finally:
            hook.remove()
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        logits = logits.reshape([-1, logits.shape[-1]])
        found = np.empty(len(targets), dtype=np.float64)
        step = max(1, LOGITS // logits.shape[-1])
        for start in range(0, len(wanted), step):
            part = logits[start : start + step].astype("float32")
            inside = np.flatnonzero((where >= start) & (where < start + step))
            if not len(inside):
                continue
            row = paddle.to_tensor(where[inside] - start)
            picked = part.gather_nd(paddle.stack([row, paddle.to_tensor(targets[inside])], axis=1))
            found[inside] = (picked - paddle.logsumexp(part, axis=-1).index_select(row)).numpy()
        if not np.isfinite(found).all():
            raise UserError(
                "the model's logits are no numbers: its weights are damaged, or too large for --dtype float16. Try "
                "--dtype bfloat16 or float32."
            )
        return found


def shares_prefixes(family: Family, config: dict) -> bool:
    """Whether positions and masks of packed rows say all that the model needs to know of where a token stands. Biases
    by distance (ALiBi) are counted along the row, learned positions of OPT from the mask, and dynamic scaling follows
    the row's length."""
    return family.rotary and not family.alibi and "packing" not in family.lacking and not scaled_by_length(config)
