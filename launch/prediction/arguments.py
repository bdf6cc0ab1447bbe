"""What the commands that load a model to use it say alike."""

import argparse

from launch.devices.cards import list_cards
from launch.devices.cuda import paddle_build

QUANTIZED = ["weight_only_int8", "weight_only_int4", "llm.int8", "nf4", "fp4"]  # of launch/adapters/quantized


def default_device() -> str:
    """gpu where both a card and a Paddle for cards are there."""
    return "gpu" if list_cards() and paddle_build() not in (None, "cpu") else "cpu"


def above_zero(text: str) -> int:
    if int(text) <= 0:
        raise argparse.ArgumentTypeError(f"found {text}, expected a number above 0")
    return int(text)
