"""Likelihoods of tokens from a model's logits: of an answer's as they are chosen, of a prompt's in one pass.

The logits of a prompt exist a part at a time (launch/prediction/logits_in_parts.py). A pass also gives those of the
first token of the answer, so that a request for one token needs no other.

Attention has weights for each head and pair of tokens of a prompt, as there is no flash attention. longest_prompt()
says how many tokens they have memory for.
"""

import math
from collections.abc import Iterator

import numpy as np
import paddle

from launch.families.parameters import attention_heads
from launch.generation.generate import require_numbers
from launch.prediction.logits_in_parts import LogitsInParts
from launch.prediction.predictor import Predictor
from launch.serving.request import Likelihood

TOKENS = 4096  # of several prompts that are read together, padded; a longer one is read alone
WEIGHTS = 16  # bytes of a head's weight while it is made, in float32 at most 4 times (CPU, 5 families: 2.4 to 4.1)
LEAST = -9999.0  # the OpenAI API's logarithm of 0; JSON has no infinity


def likelihoods(logits: paddle.Tensor, tokens: list[int], top: int, known_ids: int | None) -> list[Likelihood]:
    """Return the likelihood of each row's token.

    Args:
        logits: [rows, vocabulary] as the model gives them.
        tokens: One a row.
        top: Number of most likely tokens to return.
        known_ids: They are among the first known_ids, which the tokenizer has; None: among all.

    Raises:
        UserError: If logits are no numbers.
    """
    logits = logits.astype("float64")  # a sum over a vocabulary in float32 is off by 5e-5 to 3e-4
    total = paddle.logsumexp(logits, axis=-1, keepdim=True)
    chosen = paddle.take_along_axis(logits, paddle.to_tensor(tokens)[:, None], axis=-1)
    values = (chosen - total).squeeze(-1).numpy()
    require_numbers(not bool(np.isnan(values).any()))
    ranks = 1 + (logits > chosen).sum(axis=-1).numpy()
    best, ids = np.empty((len(tokens), 0)), np.empty((len(tokens), 0), dtype=np.int64)
    if top:
        likely, likely_ids = paddle.topk(logits[:, :known_ids], min(top, logits.shape[-1]))
        best, ids = (likely - total).numpy(), likely_ids.numpy()
    return [
        Likelihood(token, _finite(value), int(rank), tuple(zip(row_ids, map(_finite, row), strict=True)))
        for token, value, rank, row_ids, row in zip(tokens, values, ranks, ids.tolist(), best, strict=True)
    ]


def _finite(value: float) -> float:
    return max(float(value), LEAST)


def longest_prompt(config: dict, memory_bytes: float) -> float:
    """Return the tokens of the longest prompt whose likelihoods fit the memory. config: of the model."""
    if memory_bytes == math.inf:
        return math.inf
    return math.isqrt(int(memory_bytes) // (WEIGHTS * attention_heads(config)))


def prompt_likelihoods(
    predictor: Predictor, prompts: list[list[int]], top: int, longest: float = math.inf
) -> Iterator[tuple[list[Likelihood], paddle.Tensor]]:
    """Yield for each prompt of a causal model the likelihoods of its tokens and the logits behind it.

    Logits are float32 [1, vocabulary].

    The first token has no value. Prompts of a model with a prefix must have one length. longest: of longest_prompt();
    prompts that are read together take no more memory than one of this length.
    """
    batch: list[list[int]] = []
    for prompt in prompts:
        rows, length = len(batch) + 1, max(map(len, [*batch, prompt]))
        if batch and (rows * length > TOKENS or rows * length**2 > longest**2):
            yield from _of_batch(predictor, batch, top)
            batch = []
        batch.append(prompt)
    yield from _of_batch(predictor, batch, top)


@paddle.no_grad()
def _of_batch(predictor: Predictor, prompts: list[list[int]], top: int) -> list[tuple[list[Likelihood], paddle.Tensor]]:
    length = max(map(len, prompts))
    ids = np.stack([np.pad(prompt, (0, length - len(prompt))) for prompt in prompts])  # no token sees what is behind it
    layer = LogitsInParts(predictor.model, predictor.family)
    places = [index * length + place for index, prompt in enumerate(prompts) for place in range(len(prompt))]
    hidden_states = layer.read({"input_ids": paddle.to_tensor(ids)}).index_select(paddle.to_tensor(places))
    following = [token for prompt in prompts for token in (*prompt[1:], 0)]  # 0: behind the last one, not used
    ends = np.cumsum([len(prompt) for prompt in prompts]) - 1
    found: list[Likelihood] = []
    last: list[paddle.Tensor] = []
    for start, part in layer.parts(hidden_states):
        stop = start + part.shape[0]
        found += likelihoods(part, following[start:stop], top, predictor.known_ids)
        last += [part[end - start : end - start + 1].clone() for end in ends.tolist() if start <= end < stop]
        del part  # before the next
    starts = [0, *(ends[:-1] + 1).tolist()]
    return [
        ([Likelihood(prompt[0], None), *found[start:end]], logits)
        for prompt, start, end, logits in zip(prompts, starts, ends.tolist(), last, strict=True)
    ]
