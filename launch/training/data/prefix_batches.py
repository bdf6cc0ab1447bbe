"""Batches for ChatGLM-6B and GLM, which read a prompt in both directions (launch/families/prefix_lm.py).

Prompts end with the marks of the family (answer_marks), as in launch/generation: the last one begins the answer.
"""

import numpy as np

from launch.families import prefix_lm
from launch.families.registry import Family
from launch.training.data.batches import Collator
from launch.training.loss.pipeline_loss import IGNORED


class PrefixCollator(Collator):
    """Adds "attention_mask" [batch, 1, length, length], of GLM float32, of ChatGLM bool, and "position_ids" int64
    [batch, 2, length]. Samples have one answer each (data_tools.formats.dialogues.encoding)."""

    def __init__(self, family: Family, pad: int, multiple: int = 1):
        super().__init__(pad, length=None, multiple=multiple)
        self.family = family

    def __call__(self, samples: list[dict]) -> dict:
        batch = super().__call__(samples)
        length = batch["labels"].shape[1]
        contexts = [max(int(np.argmax(labels != IGNORED)), 1) for labels in batch["labels"]]
        masks = np.stack([prefix_lm.attention_mask(length, context) for context in contexts])
        batch["attention_mask"] = masks.astype("float32") if self.family.name == "glm" else masks
        batch["position_ids"] = np.stack(
            [
                prefix_lm.position_ids(length, context, prefix_lm.mask_position(context, self.family.answer_marks))
                for context in contexts
            ]
        )
        return batch
