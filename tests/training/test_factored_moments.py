"""Adafactor beside that of transformers."""

import numpy as np
import pytest

from tests.training.factored_ranks import DECAY, RATE, SHAPES, start_and_gradients

pytestmark = pytest.mark.long


def test_steps_are_those_of_transformers(ranks):
    torch, optimization = pytest.importorskip("torch"), pytest.importorskip("transformers.optimization")
    [found] = ranks(1, "tests.training.factored_ranks:optimize")
    for name, shape in SHAPES.items():
        start, gradients = start_and_gradients(shape)
        weights = torch.nn.Parameter(torch.tensor(start))
        usual = {"lr": RATE, "weight_decay": DECAY, "scale_parameter": False, "relative_step": False}
        optimizer = optimization.Adafactor([weights], **usual)
        for gradient in gradients:
            weights.grad = torch.tensor(gradient)
            optimizer.step()
        expected = weights.detach().numpy()
        assert np.abs(np.array(found[name]) - expected).max() < 1e-6 * np.abs(expected).max(), name
        assert np.abs(expected - start).mean() > RATE  # it has gone some way
