r"""Merge a LoRA adapter into the model it was trained on. No GPU is needed.

    python launch/commands/merge.py --model_name_or_path models/llama-7b \
        --adapter_path checkpoints/llama-7b-lora \
        --output_dir models/llama-7b-merged

The adapter may come from any layout: one process, tensor or pipeline parallel. Weights are read in pieces and keep
their dtype. Then each weight is read back, and the logits of the merged model are compared with those of base +
adapter, layer by layer. The new directory appears when both agree. --check-only does this for an existing directory.
"""

import argparse
import sys
from pathlib import Path
from shlex import quote

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import BEGINS_ANEW, Parser, amount
from launch.adapters.lora_files import LoraFiles, read_lora, require_adapter
from launch.config.typed import typed
from launch.entry import start_paddle
from launch.errors import UserError
from launch.guard import guarded
from launch.hubs.model_card import README, trained
from launch.reporting.records import RUN_SUMMARY
from launch.weights.merging import check_weights, merge, merged_tensors


def main(argv: list[str]) -> None:
    """Run the command."""
    args = _parse(argv)
    require_adapter(args.adapter_path, args.model_name_or_path or "BASE")
    lora = read_lora(args.adapter_path)
    base = _base(args, lora)
    merged_tensors(base, lora)  # do they fit each other? before anything that takes time
    print(f"{len(lora.layers)} layers of {base}, r {lora.config['r']}, scaling {lora.scaling:g}: {lora.directory}")
    if args.check_only:
        _check(base, lora, args.output_dir)
        return
    merge(base, lora, args.output_dir, int(args.shard_gb * 1e9), lambda merged: _check(base, lora, merged))
    merged = args.output_dir
    if (lora.directory / RUN_SUMMARY).is_file():
        (merged / README).write_text(trained(lora.directory, merged.resolve().name), encoding="utf-8")
    print(f"use it: --model_name_or_path {quote(str(merged))}, or MODEL={typed(merged)}")


def _check(base: Path, lora: LoraFiles, merged: Path) -> None:
    """Raise UserError where `merged` is not base + adapter."""
    print(f"largest difference of weights, as a part of the largest nearby: {check_weights(base, lora, merged):.2g}")
    start_paddle(on_cpu=True)
    from launch.prediction.merged_logits import compare_logits

    comparison = compare_logits(base, lora, merged)
    if not comparison.ok:
        raise UserError(f"the merged model is not base + adapter: {comparison}")
    print(comparison)


def _base(args: argparse.Namespace, lora: LoraFiles) -> Path:
    """Return the directory of the base: as given, or as the adapter's configuration names it."""
    base = Path(args.model_name_or_path or lora.config.get("base_model_name_or_path") or "")
    if not (base / "config.json").is_file():
        raise UserError(f"--model_name_or_path: {str(base)!r} is no model directory. Name that of the adapter's base.")
    return base


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/merge.py", __doc__)
    parser.add_argument("--model_name_or_path", help="directory of the base; default: named by the adapter")
    parser.add_argument("--adapter_path", "--lora_path", type=Path, required=True, help="directory of the adapter")
    parser.add_argument(
        "--output_dir",
        "--merge_lora_model_path",
        type=Path,
        required=True,
        help="directory of the merged model: made, or checked",
    )
    parser.add_argument(
        "--check-only",
        "--check_only",
        action="store_true",
        help="write nothing: check that --output_dir is the merged model",
    )
    parser.add_argument("--shard_gb", type=amount, default=5.0, help="largest file in GB; default %(default)s")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:], BEGINS_ANEW))
