"""Add tokens to a model: to its tokenizer, and with rows of their own to its embeddings and output layer.

    python launch/commands/add_tokens.py models/llama-7b models/tools "<call>"

Neither a GPU nor Paddle is needed. New rows are the mean of the old ones. Train them beside a LoRA with the flag that
is printed, or with all other weights. The new directory appears when it is complete.
"""

import argparse
import sys
from pathlib import Path
from shlex import quote

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import BEGINS_ANEW, Parser, amount
from launch.config.typed import typed
from launch.guard import guarded
from launch.weights.more_tokens import add_tokens


def main(argv: list[str]) -> None:
    """Run the command."""
    args = _parse(argv)
    ids = add_tokens(args.source, args.target, args.tokens, int(args.shard_gb * 1e9))
    print(f"{args.target}: {args.source} with {', '.join(args.tokens)} as {', '.join(map(str, ids))}")
    print(f"use it: --model_name_or_path {quote(str(args.target))}, or MODEL={typed(args.target)}")
    print(f"train them beside a LoRA: --lora 1 --trainable_token_indices {' '.join(map(str, ids))}")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/add_tokens.py", __doc__)
    parser.add_argument("source", type=Path, help="model directory")
    parser.add_argument("target", type=Path, help="new directory")
    parser.add_argument("tokens", nargs="+", help="texts of the tokens, in the order of their ids")
    parser.add_argument("--shard_gb", type=amount, default=5.0, help="largest file in GB; default %(default)s")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:], BEGINS_ANEW))
