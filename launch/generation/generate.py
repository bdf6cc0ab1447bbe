"""Answers to prompts of different lengths, in batches, by paddlenlp's generate(): the same tokens as one by one.

    answers = generate(model, family, [[5, 9, 2], [7]], Decoding(max_new_tokens=20), ends=(2,))

Prompts are padded on the left, so that all answers begin in the same column; no token sees the padding.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import paddle
from paddlenlp.generation import GenerationConfig, LogitsProcessor, LogitsProcessorList

from launch.errors import UserError
from launch.families.encoding import mask_position, prefix_lm_mask, prefix_lm_positions
from launch.families.registry import Family
from launch.upstream import correct

PAD = 0  # never seen: any id does


@dataclass(frozen=True)
class Decoding:
    """The rule by which the next token is chosen.

    temperature 0: the most likely one. top_k 0 and top_p 1: among all.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def config(self, ends: tuple[int, ...]) -> GenerationConfig:
        """Return paddlenlp's configuration, whole: nothing is taken from a model's generation_config.json."""
        limits = {"max_new_tokens": self.max_new_tokens, "eos_token_id": list(ends), "pad_token_id": ends[0]}
        if not self.temperature:  # paddlenlp warns about values that greedy search does not use
            return GenerationConfig(decode_strategy="greedy_search", top_k=0, **limits)
        return GenerationConfig(
            decode_strategy="sampling", temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, **limits
        )


def generate(
    model,
    family: Family,
    prompts: list[list[int]],
    decoding: Decoding,
    ends: tuple[int, ...],
    known_ids: int | None = None,
    processors: Iterable[LogitsProcessor] = (),
    over: Callable[[list[int]], bool] | None = None,
    **more,
) -> list[list[int]]:
    """Return the ids of each answer, without its end. All ranks of a model call it together.

    ends: the ids that end an answer. known_ids: only ids below it are chosen, the ones of the tokenizer; None: all of
    the model's. processors: of the logits, after that. over: whether an answer is at its end, by its ids so far; None:
    the ends alone. more: for generate(), as `streamer`.

    Raises:
        UserError: If the model's logits are no numbers.
    """
    correct(["logits_processor_list"])
    more |= {"over": over, "processors": [KnownIds(known_ids), *processors]}
    if not hasattr(model, "prefix_config"):
        return _generate(model, family, prompts, decoding, ends, **more)
    # A prefix has its keys at fixed positions: padding between it and a prompt would move the prompt away from it.
    answers: dict[int, list[int]] = {}
    for length in sorted({len(prompt) for prompt in prompts}):
        indices = [index for index, prompt in enumerate(prompts) if len(prompt) == length]
        found = _generate(model, family, [prompts[index] for index in indices], decoding, ends, **more)
        answers |= zip(indices, found, strict=True)
    return [answers[index] for index in range(len(prompts))]


class KnownIds(LogitsProcessor):
    """Masks the logits of ids that a tokenizer cannot decode, all but the first `size`.

    It checks the logits of the first token for NaN: a weight that is NaN makes all of them NaN, and any id could be
    chosen.
    """

    def __init__(self, size: int | None):
        self.size = size
        self.checked = False
        self.mask: paddle.Tensor | None = None

    def __call__(self, input_ids: paddle.Tensor | None, logits: paddle.Tensor) -> paddle.Tensor:
        """Return the masked logits, [rows, vocabulary]. The first ones are checked."""
        if not self.checked:
            require_numbers(not any(damaged(logits, self.size)))
        self.checked = True
        return self.masked(logits)

    def masked(self, logits: paddle.Tensor) -> paddle.Tensor:
        """Return the masked logits, [rows, vocabulary], without a check."""
        if self.size is None or self.size >= logits.shape[-1]:
            return logits
        if self.mask is None:
            self.mask = paddle.zeros([logits.shape[-1]], logits.dtype)
            self.mask[self.size :] = paddle.finfo(logits.dtype).min
        return logits + self.mask


class End(LogitsProcessor):
    """Ends answers that are over: the end alone can follow.

    Attributes:
        length: Of the prompts, with their padding.
    """

    def __init__(self, over: Callable[[list[int]], bool], length: int, end: int):
        self.over, self.length, self.end = over, length, end

    def __call__(self, input_ids: paddle.Tensor, logits: paddle.Tensor) -> paddle.Tensor:
        """Return the logits, [rows, vocabulary], with only the end left for answers that are over."""
        answers: list[list[int]] = input_ids[:, self.length :].tolist()  # pyright: ignore[reportAssignmentType]
        over = [self.over(answer) for answer in answers]
        if not any(over):
            return logits
        ended = paddle.full([1, logits.shape[-1]], paddle.finfo(logits.dtype).min, logits.dtype)
        ended[:, self.end] = 0
        return paddle.where(paddle.to_tensor(over).unsqueeze(1), ended, logits)


def damaged(logits: paddle.Tensor, known_ids: int | None) -> list[bool]:
    """Return for each row of logits, [rows, vocabulary], whether one of the first known_ids is NaN; None: of all."""
    found: list[bool] = paddle.isnan(logits[:, :known_ids]).any(axis=-1).tolist()  # pyright: ignore[reportAssignmentType]
    return found


def require_numbers(found: bool) -> None:
    """Raise UserError where a model's logits are found to be no numbers."""
    if not found:
        raise UserError(
            "the model's logits are no numbers: its weights are damaged, or too large for --dtype float16. Try "
            "--dtype bfloat16 or float32."
        )


def known_ids_of(tokenizer) -> int:
    """Return one more than the largest id that a tokenizer can decode.

    Its len() counts added tokens twice where its vocabulary has them, too; a special token that it has no id for is
    None.
    """
    others = [*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()]
    return max([tokenizer.vocab_size, *(last_id + 1 for last_id in others if last_id is not None)])


def _generate(
    model,
    family: Family,
    prompts: list,
    decoding: Decoding,
    ends: tuple[int, ...],
    processors: list,
    over: Callable | None,
    **more,
) -> list[list[int]]:
    if over:
        processors = [*processors, End(over, max(map(len, prompts)), ends[0])]
    with paddle.no_grad():
        ids, _ = model.generate(
            **_inputs(family, prompts, decoding.max_new_tokens),
            generation_config=decoding.config(ends),
            logits_processors=LogitsProcessorList(processors),
            **more,
        )
    return [list(takewhile(lambda token: token not in ends, row)) for row in ids.tolist()]


def _inputs(family: Family, prompts: list[list[int]], new_tokens: int) -> dict[str, paddle.Tensor]:
    length = max(map(len, prompts))
    padding = [length - len(prompt) for prompt in prompts]
    ids = [[PAD] * pad + prompt for pad, prompt in zip(padding, prompts, strict=True)]
    arrays = {"input_ids": np.array(ids, dtype=np.int64)}
    if family.attention == "prefix":
        arrays |= _prefix_inputs(family, prompts, length, new_tokens)
    else:
        arrays["attention_mask"] = np.array([[0] * pad + [1] * (length - pad) for pad in padding], dtype=np.int64)
    return {key: paddle.to_tensor(array) for key, array in arrays.items()}


def _prefix_inputs(family: Family, prompts: list[list[int]], length: int, new_tokens: int) -> dict[str, np.ndarray]:
    """Mask and positions of launch/families/encoding.py; a prompt's last token is the one that begins the answer.

    GLM wants them for the answer, too; ChatGLM's grow with it.
    """
    total = length + new_tokens if family.mask_covers_answer else length
    masks = np.tile(np.eye(total, dtype=bool), (len(prompts), 1, 1, 1))
    positions = np.zeros((len(prompts), 2, total), dtype=np.int64)
    for number, prompt in enumerate(prompts):
        pad, context = length - len(prompt), len(prompt) - 1
        mask = mask_position(context, family.answer_marks)
        masks[number, :, pad:, pad:] = prefix_lm_mask(total - pad, context)
        positions[number, :, pad:] = prefix_lm_positions(total - pad, context, mask)
    return {"attention_mask": masks.astype(family.mask_dtype), "position_ids": positions}
