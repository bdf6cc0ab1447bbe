"""An imported model gives the logits that its published description gives, computed by NumPy in float64."""

import numpy as np
import pytest

from launch.weights.model_directories import import_directory
from tests.families import published as models
from tests.families import reference
from tests.families.published import MASK, PROMPT

TOLERANCE = 1e-5  # of logits of size 1, in float32
LENGTH = 12


def theta_of_transformers_5():
    config, tensors = models.llama()
    parameters = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
    return config | {"rope_parameters": parameters}, tensors


def linear_of_transformers_5():
    config, tensors = models.llama()
    return config | {"rope_parameters": {**models.LINEAR, "rope_theta": config.pop("rope_theta")}}, tensors


CASES = {  # name: (the model, its reference)
    **{name: (models.ALL[name], forward) for name, forward in reference.FORWARD.items()},
    "llama, rope_parameters": (theta_of_transformers_5, reference.llama),
    "llama, tied": (lambda: models.llama(tie_word_embeddings=True), reference.llama),
    "llama, llama3": (lambda: models.llama(rope_scaling=models.LLAMA3), reference.llama),
    "llama, linear": (linear_of_transformers_5, reference.llama),
    "llama, dynamic": (lambda: models.llama(max_position_embeddings=8, rope_scaling=models.DYNAMIC), reference.llama),
    "qwen2, yarn": (lambda: models.qwen2(max_position_embeddings=32768, rope_scaling=models.YARN), reference.llama),
    "qwen3, yarn": (lambda: models.qwen3(rope_scaling=models.YARN_WITH_ALL), reference.llama),
    "baichuan2-13b": (lambda: models.baichuan(alibi=True, z_loss_weight=0), reference.llama),
    "glm": (models.glm, lambda *model: reference.glm(*model, context=PROMPT, mask=MASK)),
}


@pytest.fixture(scope="module")
def ids() -> np.ndarray:
    """Two samples; ChatGLM-6B finds its [gMASK] and <sop> in them."""
    ids = np.random.default_rng(1).integers(4, 90, size=(2, LENGTH))
    ids[:, MASK], ids[:, PROMPT] = 91, 90
    return ids


@pytest.fixture(scope="module")
def found(ranks, tmp_path_factory, ids) -> dict[str, np.ndarray]:
    """Logits of all cases, imported and loaded as a recipe loads a model."""
    root = tmp_path_factory.mktemp("logits")
    np.save(root / "ids.npy", ids)
    targets = []
    for name, (make, _) in CASES.items():
        source = models.save(root / f"{name} theirs", *make(), shards=3)
        import_directory(source, root / name, dtype=None, shard_bytes=30_000)
        targets.append(str(root / name))
    ranks(1, "tests.weights.logits_ranks:save_logits", targets, str(root / "ids.npy"))
    return {name: np.load(root / f"{name}.logits.npy") for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_the_reference(found, ids, name):
    make, forward = CASES[name]
    expected = forward(*make(), ids)
    assert found[name].shape == expected.shape == (2, LENGTH, models.VOCABULARY)
    assert np.abs(found[name] - expected).max() <= TOLERANCE * max(1.0, np.abs(expected).max())
