r"""Measure what a base in 8 or 4 bits adds to the loss: on dialogues, for the original weights and each format.

    python launch/commands/quantization_loss.py \
        --model_name_or_path models/llama-7b --dataset_name_or_path data

Use it to choose a format before a long run or for serving. The model is never in memory as a whole. On a CPU a model of
7 billion parameters takes minutes for each sample, so use few samples there.
"""

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser, above_zero
from launch.entry import start_paddle
from launch.guard import guarded
from launch.prediction.model_flags import DEVICES, FORMATS, QUANTIZED, check_model, default_device


def main(argv: list[str]) -> None:
    """Run the command."""
    args = _parse(argv)
    check_model(str(args.model_name_or_path))
    start_paddle(on_cpu=args.device == "cpu")

    from launch.adapters.quantization import Format
    from launch.prediction.format_losses import losses
    from launch.training.device import set_device

    set_device(args.device)
    formats = [Format(algo, double_quant=algo in ("nf4", "fp4")) for algo in args.weight_quantize_algo]
    lengths = (args.src_length, args.max_length)
    dense = None
    for row in losses(args.model_name_or_path, args.dataset_name_or_path, formats, args.samples, lengths):
        dense = row.loss if dense is None else dense
        print(f"{row.name:<17} loss {row.loss:.4f}  {row.loss - dense:+.4f}  {row.line}".rstrip(), flush=True)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/quantization_loss.py", __doc__)
    add = parser.add_argument
    add("--model_name_or_path", type=Path, required=True, help="model directory, with its tokenizer")
    add("--dataset_name_or_path", required=True, help="folder with dev.json, or one file (docs/finetune.md)")
    add(
        "--weight_quantize_algo",
        nargs="+",
        choices=QUANTIZED,
        default=QUANTIZED,
        metavar="X",
        help=f"formats to compare, of {FORMATS}",
    )
    add("--samples", type=above_zero, default=32, help="largest number of samples; default %(default)s")
    add(
        "--src_length",
        type=above_zero,
        default=1024,
        help="longest question in tokens; the end of a longer one is kept",
    )
    add("--max_length", type=above_zero, default=2048, help="longest sample in tokens; default %(default)s")
    add("--device", choices=DEVICES, default=default_device(), help="where the model runs; default here: %(default)s")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
