"""Answers sampled from a model that is being trained, many at a time, with the probabilities that their tokens had.

    sampler = Sampler(PackedModel(model, family), ends=(2,), known_ids=4096, tokens=65536)
    [answer] = sampler.answer([[5, 9, 2]], Sampling(temperature=1.0, top_k=0, top_p=1.0, longest=20), [default_rng(0)])
    answer.ids, answer.logps

The model computes them with its weights as they are now, an adapter's beside the base's, without a copy. Prompts that
begin alike are computed once.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import paddle

from launch.errors import UserError
from launch.generation.drawing import Drawn, draw_scored
from launch.generation.generate import damaged
from launch.generation.packed import PackedModel
from launch.generation.packed_texts import PackedTexts


@dataclass(frozen=True)
class Sampling:
    """How answers are sampled.

    Attributes:
        temperature: 0: always the most likely token.
        top_k, top_p: 0, and 1: among all.
        longest: Tokens of an answer, with its end.
        at_once: Answers.
    """

    temperature: float
    top_k: int
    top_p: float
    longest: int
    at_once: int = 64


@dataclass
class SampledAnswer:
    """An answer.

    Attributes:
        ids: With its end, where it has one.
        logps: Of each token, in nats, by the distribution that it was drawn from.
        kept: The ids that each token was drawn from; empty where it was from all.
        ended: Whether the model ended it; else it was cut off at the largest length.
    """

    ids: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    kept: list[list[int]] = field(default_factory=list)
    ended: bool = False

    def add(self, drawn: Drawn) -> None:
        """Add a token."""
        self.ids.append(drawn.token)
        self.logps.append(drawn.logp)
        if drawn.kept is not None:
            self.kept.append(drawn.kept.tolist())


class Sampler:
    """Samples from a model.

    Attributes:
        ends: Ids that end an answer.
        known_ids: Only ids below it are drawn, which the tokenizer has.
        tokens: Of keys and values that there is memory for.
    """

    def __init__(self, packed: PackedModel, ends: tuple[int, ...], known_ids: int, tokens: int):
        self.ends, self.known_ids = ends, known_ids
        self.texts = PackedTexts(packed, tokens)

    @paddle.no_grad()
    def answer(
        self,
        prompts: Sequence[list[int]],
        sampling: Sampling,
        randoms: Sequence[np.random.Generator],
        moved: Callable[[], object] = lambda: None,
    ) -> list[SampledAnswer]:
        """Return an answer to each prompt, which depends on the weights, the prompts and the randoms alone.

        Args:
            randoms: Of each answer.
            moved: Called after each step.
            prompts: Ids.
            sampling: How.

        Raises:
            UserError: If logits are no numbers, or there is no memory for a prompt and its answer.
        """
        texts, answers = self.texts, [SampledAnswer() for _ in prompts]
        waiting, working = deque(range(len(prompts))), set[int]()
        while waiting or working:
            while waiting and len(working) < sampling.at_once:
                ids = list(prompts[waiting[0]])
                if not texts.add(waiting[0], ids, len(ids) + sampling.longest):
                    break
                working.add(waiting.popleft())
            if not working:
                raise UserError(f"a prompt of {len(prompts[waiting[0]]):,} tokens has no room in {texts.tokens:,}.")
            parts, logits = texts.compute()
            texts.settle([])
            parts = [part for part in parts if part.complete]
            if parts:
                rows = logits.index_select(paddle.to_tensor([part.rows[-1] for part in parts]))
                self._draw([part.number for part in parts], rows, sampling, randoms, answers)
                done = []
                for one in parts:
                    answer = answers[one.number]
                    answer.ended = answer.ids[-1] in self.ends
                    if answer.ended or len(answer.ids) == sampling.longest:
                        done.append(one.number)
                texts.remove(done)
                working -= set(done)
                texts.append([(one.number, answers[one.number].ids[-1]) for one in parts if one.number in working])
            moved()
        texts.clear()  # later weights have other keys and values
        return answers

    def _draw(self, numbers: list[int], logits: paddle.Tensor, sampling: Sampling, randoms, answers) -> None:
        if any(damaged(logits, self.known_ids)):
            raise UserError(
                "the model's logits are no numbers: the weights have become NaN. Resume from an earlier checkpoint, "
                "with a lower --learning_rate."
            )
        rows = logits[:, : self.known_ids].astype("float32").numpy()
        for number, row in zip(numbers, rows, strict=True):
            if sampling.temperature:
                answers[number].add(draw_scored(row, sampling, randoms[number]))
            else:
                answers[number].add(Drawn(int(row.argmax()), 0.0, None))
