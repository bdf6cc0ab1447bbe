"""What the ranks of tests/processes/test_ranks.py do."""

import os


def data_workers() -> list[list[int]]:
    """What the two workers of a training's loader say of themselves: [leads its process group, signal at the rank's
    end]."""
    from functools import partial
    from types import SimpleNamespace

    import numpy as np

    from launch.reporting.throughput import TrainingClock
    from launch.training.data import TrainingData

    def describe(rows):
        import ctypes

        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(number), 0, 0, 0)  # PR_GET_PDEATHSIG
        return np.array([os.getpgrp() == os.getpid(), number.value])

    data = SimpleNamespace(train=[0, 1], padding={}, stream=[[0], [1]], collate=describe, join=None)
    data._batched = partial(TrainingData._batched, data)
    data._loader = partial(TrainingData._loader, data)
    return [np.asarray(batch).tolist() for batch in TrainingData.train_loader(data, 2, TrainingClock())]
