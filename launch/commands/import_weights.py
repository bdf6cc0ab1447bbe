"""Import a model of Hugging Face, a LoRA adapter in PEFT's format, or a GGUF file.

    python launch/commands/import_weights.py ~/Llama-2-7b-hf ./models/llama-2-7b
    python launch/commands/import_weights.py SmolLM2-135M-Instruct.Q4_1.gguf

Converts names, matrices, configuration and tokenizer. Reads safetensors or .bin files; .bin files without torch and
without running code that a pickle may hold. Weights are read in pieces and keep their dtype without --dtype. The new
directory appears when it is complete. An adapter needs --base. Packed weights of GGUF become float32 without --dtype.
Families: docs/families.md.
"""

import argparse
import sys
from pathlib import Path
from shlex import quote

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import BEGINS_ANEW, Parser, amount
from launch.config.typed import typed
from launch.errors import UserError
from launch.families.named_configs import how_to_get
from launch.guard import guarded
from launch.weights import peft
from launch.weights.gguf_import import import_gguf
from launch.weights.gguf_names import require_one_file
from launch.weights.model_directories import import_directory
from launch.weights.torch_reader import FILES


def main(argv: list[str]) -> None:
    """Run the command."""
    args = _parse(argv)
    source = args.source.expanduser()
    if not source.exists() and (way := how_to_get(str(args.source))):
        raise UserError(f"{source}: no such directory. {way}")
    # A GGUF file is the source itself, or what a folder without other weights holds.
    others = source.is_dir() and any((source / name).is_file() for name in FILES)
    is_gguf = source.suffix == ".gguf" or (not others and any(source.glob("*.gguf")))
    file = require_one_file(source) if is_gguf else None
    target = (args.target or Path("models") / (file.stem if file else source.resolve().name)).expanduser()
    if (source / peft.CONFIG).is_file():
        tensors, is_merged = peft.import_adapter(source, args.base, target, int(args.shard_gb * 1e9))
        if is_merged:  # for what, docs/families.md says
            print(f"{target}: {args.base} merged with {tensors} tensors of the adapter, not of linear layers alone")
            print(f"use it: --model_name_or_path {quote(str(target))}, or MODEL={typed(target)}")
        else:
            print(f"{target}: a LoRA adapter of {tensors} tensors\nuse it: ADAPTER={typed(target)}")
        return
    importing, place = (import_gguf, file) if file else (import_directory, source)
    imported = importing(place, target, args.dtype, int(args.shard_gb * 1e9))
    print(f"{target}: {imported.family.title}, {imported.parameters:,} parameters in {', '.join(imported.dtypes)}")
    print(imported.tokenizer)
    print(f"use it: --model_name_or_path {quote(str(target))}, or MODEL={typed(target)}")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/import_weights.py", __doc__)
    parser.add_argument(
        "source", type=Path, help="directory of a Hugging Face model or of a PEFT adapter, or a GGUF file"
    )
    parser.add_argument("target", type=Path, nargs="?", help="new directory; default ./models/NAME OF SOURCE")
    parser.add_argument("--base", type=Path, help="imported base model of a PEFT adapter")
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16", "float16"], help="dtype of the weights; default: unchanged"
    )
    parser.add_argument("--shard_gb", type=amount, default=5.0, help="largest file in GB; default %(default)s")
    args = parser.parse_args(argv)
    if (args.source.expanduser() / peft.CONFIG).is_file() and not args.base:
        parser.error('a PEFT adapter needs the directory of its imported model: --base DIR, of make ARGS="--base DIR"')
    return args


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:], BEGINS_ANEW))
