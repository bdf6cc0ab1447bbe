"""Pairs over pipeline stages.

A micro batch has the chosen rows of its pairs, then the rejected ones, as any batch of collate_pairs
(launch/training/preference_data.py), and the last stage reads more than labels.

Upstream (FakeMicroDataset of paddle/distributed/fleet/meta_parallel/pipeline_parallel.py) cuts a batch by rows, which
would part the rows of a pair, and gives the last stage what it finds in the place of the labels.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import paddle

LAST_STAGE = ("labels", "pairs", "reference")  # of a batch: what the last stage reads, in this order


def micro_batch(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return a batch as a pipeline takes it: "labels" is the list of the last stage's inputs, None for missing ones."""
    others = {name: value for name, value in inputs.items() if name not in LAST_STAGE}
    return others | {"labels": [inputs.get(name) for name in LAST_STAGE]}


def cut(inputs: dict[str, paddle.Tensor], number: int) -> list[dict[str, paddle.Tensor]]:
    """Return a batch of pairs cut into `number` micro batches of equally many pairs. All values are [rows, ...]."""
    halves = {name: value.reshape([2, number, -1, *value.shape[1:]]) for name, value in inputs.items()}
    return [
        {name: value[:, index].reshape([-1, *value.shape[3:]]) for name, value in halves.items()}
        for index in range(number)
    ]


def joined(parts: list[paddle.Tensor]) -> paddle.Tensor:
    """Return the rows of micro batches in the order of the batch that was cut."""
    halves = [part.chunk(2) for part in parts]
    return paddle.concat([half for side in zip(*halves, strict=True) for half in side])


@contextlib.contextmanager
def last_stage_computes(pipeline, criterion: Callable) -> Iterator[None]:
    """Let a wrapped pipeline have this criterion alone within the block."""
    layers = pipeline._layers
    criteria, layers._loss_fn = layers._loss_fn, [criterion]
    try:
        yield
    finally:
        layers._loss_fn = criteria
