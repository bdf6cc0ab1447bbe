"""A batch for a family that reads prompts in both directions, for test_prefix_batches.py."""


def batch(name: str) -> dict:
    """Of two samples: a prompt of 3 tokens with an answer of 2, and one of 2 with 1."""
    import numpy as np

    from launch.families.registry import FAMILIES
    from launch.training.batches import PrefixCollator
    from launch.training.losses import IGNORED

    samples = [
        {"input_ids": np.array([5, 6, 7, 8]), "labels": np.array([IGNORED, IGNORED, 8, 9])},
        {"input_ids": np.array([5, 6]), "labels": np.array([IGNORED, 9])},
    ]
    arrays = PrefixCollator(FAMILIES[name], pad=0)(samples)
    return {key: [str(array.dtype), array.astype(int).tolist()] for key, array in arrays.items()}
