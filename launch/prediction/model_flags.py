"""What the commands that load a model to use it say alike."""

import argparse
from collections.abc import Callable
from pathlib import Path

from data_tools.cli import above_zero
from launch.adapters import lora_files
from launch.checkpoint.weight_files import find_weights
from launch.devices.cards import list_cards
from launch.devices.cuda import paddle_build
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.parameters import gives_scores
from launch.families.registry import parameters
from launch.tape.quantized import HEAD_WEIGHT

QUANTIZED = ["weight_only_int8", "weight_only_int4", "llm.int8", "nf4", "fp4"]  # of launch/adapters/quantization.py
FORMATS = ", ".join(QUANTIZED)
DEVICES = ["cpu", "gpu"]


def default_device() -> str:
    """Return "gpu" where both a card and a Paddle for cards are there, else "cpu"."""
    return "gpu" if list_cards() and paddle_build() not in (None, "cpu") else "cpu"


def add_weight_flags(add: Callable) -> None:
    """Add the flags for the storage of weights.

    Args:
        add: Of a parser's add_argument.
    """
    add(
        "--dtype",
        choices=["float32", "bfloat16", "float16"],
        help="precision; default: that of the weights; float16 for bfloat16 before A100; float32 on a CPU",
    )
    add(
        "--weight_quantize_algo",
        choices=QUANTIZED,
        metavar="FORMAT",
        help=f"format of the base's linear layers: {FORMATS}",
    )
    add("--weight_blocksize", type=above_zero, default=64, help="weights that share one scale in nf4 and fp4")
    add("--weight_double_quant", type=int, default=0, help="1: keep the scales of nf4 and fp4 in 8 bits")
    add(
        "--weight_double_quant_block_size",
        type=above_zero,
        metavar="N",
        default=256,
        help="scales in 8 bits that share one scale",
    )
    add("--quantize_head", type=int, default=0, help="1: the output layer, too; one process, not llm.int8")


def check_weights(args: argparse.Namespace, *adapters: Path | None) -> None:
    """Check the model, its flags of add_weight_flags() and its adapters before Paddle is imported.

    Raises:
        UserError: See check_model(), check_head() and check_adapter().
    """
    check_model(args.model_name_or_path)
    check_head(args)
    for adapter in filter(None, adapters):
        check_adapter(args.model_name_or_path, adapter)


def check_model(name: str) -> None:
    """Check --model_name_or_path before Paddle is imported.

    A name is downloaded later.

    Raises:
        UserError: If there is no configuration, or a directory without readable weights: weights of Hugging Face
            are converted first.
    """
    if gives_scores(load_config(name)):
        raise UserError(
            f"--model_name_or_path: {name} is a reward model: it gives a score of a text and writes none. "
            "docs/align.md shows how to ask it."
        )
    if Path(name).is_dir():
        find_weights(name)


def check_head(args: argparse.Namespace) -> None:
    """Check --quantize_head.

    Raises:
        UserError: For formats, models and numbers of processes whose output layer is not quantized.
    """
    if not args.quantize_head:
        return
    if args.weight_quantize_algo in (None, "llm.int8"):
        allowed = ", ".join(name for name in QUANTIZED if name != "llm.int8")
        raise UserError(
            f"--quantize_head: found 1 with --weight_quantize_algo {args.weight_quantize_algo or 'left out'}, allowed: "
            f"with {allowed}."
        )
    if args.tensor_parallel_degree > 1:
        raise UserError("--quantize_head: found 1 with --tensor_parallel_degree above 1. Leave one of the two out.")
    if HEAD_WEIGHT not in {parameter.name for parameter in parameters(load_config(args.model_name_or_path))}:
        raise UserError(
            f"--quantize_head: found 1, but {args.model_name_or_path} has no output layer of its own. Leave it out."
        )


def check_adapter(name: str, adapter: Path) -> None:
    """Check that a LoRA adapter belongs to the model, by the shapes in its files and the model's configuration.

    Raises:
        UserError: If it does not, where there is no adapter, and for a reward model's; a prefix, which is small, is
            compared when it is loaded.
    """
    lora_files.require_adapter(adapter, name)
    if (adapter / lora_files.CONFIG).is_file():
        lora = lora_files.read_lora(adapter)
        if lora.score:
            raise UserError(
                f"{adapter} is the adapter of a reward model: it gives a score of a text and writes none. "
                "docs/align.md shows how to ask it."
            )
        shapes = {parameter.name: parameter.shape for parameter in parameters(load_config(name))}
        lora_files.require_fit(lora, name, shapes)
