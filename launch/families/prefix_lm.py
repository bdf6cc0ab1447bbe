"""What GLM and ChatGLM-6B read beside the token ids: who sees whom, and two rows of positions.

A sample is prompt, then the token that begins the answer (<sop> of ChatGLM, <|startofpiece|> of GLM), then the answer.
The prompt, which ends with the mask token that the answer replaces, is seen in both directions, the answer from left to
right. The first row of positions counts the prompt and stands still at the mask token during the answer; the second is
0 in the prompt and counts the answer from 1. Which tokens these are: Family.answer_marks.
Sources: arXiv 2103.10360, section 2; get_position_ids and get_masks of THUDM/chatglm-6b.
"""

import numpy as np


def attention_mask(length: int, context_length: int) -> np.ndarray:
    """bool [1, length, length]: may the token of a row see the token of a column?

    context_length: tokens before the one that begins the answer.
    """
    mask = np.tril(np.ones((length, length), dtype=bool))
    mask[:, :context_length] = True
    return mask[None]


def position_ids(length: int, context_length: int, mask_position: int) -> np.ndarray:
    """int64 [2, length]. mask_position: where in the prompt [MASK] or [gMASK] stands, which the answer replaces."""
    positions = np.arange(length)
    blocks = np.maximum(positions - context_length + 1, 0)
    positions[context_length:] = mask_position
    return np.stack([positions, blocks])


def mask_position(context_length: int, marks: tuple[str, ...]) -> int:
    """Where the first of the marks stands; the last is the token behind the context."""
    return max(context_length + 1 - len(marks), 0)
