"""What the commands that load a model to use it say alike."""

from launch.devices.cards import list_cards
from launch.devices.cuda import paddle_build

QUANTIZED = ["weight_only_int8", "weight_only_int4", "llm.int8", "nf4", "fp4"]  # of launch/adapters/quantized
FORMATS = ", ".join(QUANTIZED)
DEVICES = ["cpu", "gpu"]


def default_device() -> str:
    """gpu where both a card and a Paddle for cards are there."""
    return "gpu" if list_cards() and paddle_build() not in (None, "cpu") else "cpu"
