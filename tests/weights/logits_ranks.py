"""Logits of imported models by Paddle, for test_logits.py."""

import numpy as np
import paddle
import paddlenlp.transformers as transformers

from launch.checkpoint.model_loader import load_model
from launch.families.encoding import prefix_lm_mask, prefix_lm_positions
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.training.model import family_config
from tests.families.published import MASK, PROMPT


def save_logits(directories: list[str], ids_file: str) -> None:
    """Write DIRECTORY.logits.npy beside each directory, of the token ids in ids_file [batch, length]."""
    ids = np.load(ids_file)
    for directory in directories:
        model, family = load(directory)
        model.eval()
        arrays = {"input_ids": ids}
        if family.attention == "prefix":
            batch, length = ids.shape
            mask = np.tile(prefix_lm_mask(length, PROMPT), (batch, 1, 1, 1))
            arrays["attention_mask"] = mask.astype("float32") if family.name == "glm" else mask
            arrays["position_ids"] = np.tile(prefix_lm_positions(length, PROMPT, MASK), (batch, 1, 1))
        with paddle.no_grad():
            outputs = model(**{key: paddle.to_tensor(value) for key, value in arrays.items()})
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        np.save(f"{directory}.logits.npy", logits.numpy())


def load(directory: str, **changes) -> tuple:
    """(the model, its family)"""
    config = family_config(load_config(directory) | changes)
    family = family_of_config(config.to_dict())
    return load_model(getattr(transformers, family.model_class), config, "float32", directory), family
