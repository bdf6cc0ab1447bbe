"""Activations in host memory beside the same recomputation without: numbers to the bit, memory by what went there."""

import pytest

from tests.distributed.layouts import SINGLE, Layout

TRAIN = "tests.offload.activation_ranks:step"
LAYERS, RESIDUAL = 6, 4 * 2 * 32 * 64  # bytes of a layer's input: float32, 2 samples of 32 tokens, hidden size 64


@pytest.mark.parametrize(
    "layout",
    [
        Layout(pipeline=2, accumulation=4),
        pytest.param(SINGLE, marks=pytest.mark.long),
        pytest.param(Layout(tensor=2, sequence_parallel=True), marks=pytest.mark.long),
        pytest.param(Layout(stage=3, sharding=2, accumulation=2), marks=pytest.mark.long),
        pytest.param(Layout(tensor=2, pipeline=2, accumulation=4, sequence_parallel=True), marks=pytest.mark.long),
    ],
    ids=lambda layout: layout.name,
)
def test_losses_and_weights_are_equal_to_the_bit(runs, layout):
    """A pipeline has several micro batches under way; a rank's part of a sequence is a view."""
    kept, offloaded = (
        runs("pretraining", layout=layout, recompute=1, **more) for more in ({}, {"offload": "activations"})
    )
    for column in ("loss", "grad_norm"):
        assert list(offloaded.column(column)) == list(kept.column(column))
    for name, weight in kept.weights.items():
        assert (offloaded.weights[name] == weight).all(), name


def test_the_device_keeps_two_inputs_whatever_the_number_of_layers(ranks):
    """Without offload all of them are there when the backward pass begins. Host memory is used again."""
    kept, offloaded = ranks(1, TRAIN, LAYERS, False)[0], ranks(1, TRAIN, LAYERS, True)[0]
    assert offloaded["loss"] == kept["loss"] and offloaded["gradients"] == kept["gradients"]
    assert kept["between passes"] - offloaded["between passes"] == LAYERS * RESIDUAL
    assert kept["backward"] - offloaded["backward"] == (LAYERS - 2) * RESIDUAL
    assert offloaded["host"] == [LAYERS * RESIDUAL] * 2  # after one micro batch and after another


def test_batches_of_another_length_take_the_place_of_earlier_ones(ranks):
    assert ranks(1, "tests.offload.activation_ranks:host_bytes_of_lengths", [32, 16, 8, 32])[0] == [
        LAYERS * RESIDUAL // part for part in (1, 2, 4, 1)
    ]
