"""Export a model to the format of Hugging Face, a LoRA adapter to that of PEFT, or either to GGUF.

    python launch/commands/export.py checkpoints/llama-7b ./exported/llama-7b
    python launch/commands/export.py checkpoints/llama-7b-lora ./exported/lora
    python launch/commands/export.py checkpoints/llama-7b --format gguf

The source is the output directory of a run or one of its checkpoint-N, trained in any layout. To export an adapter
together with its base, merge them first (make merge). Neither a GPU nor torch is needed; weights are read in pieces.
The result is read back and compared bit by bit. The new directory appears when it is right. docs/export.md: families.
"""

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import BEGINS_ANEW, Parser, amount
from launch.adapters import lora_files
from launch.errors import UserError
from launch.families.named_configs import read_config
from launch.guard import guarded
from launch.hubs.model_card import README, write_card
from launch.weights.gguf_export import QUANTS, export_adapter_gguf, export_gguf
from launch.weights.model_directories import export_directory
from launch.weights.peft import CONFIG as PEFT_CONFIG
from launch.weights.peft import export_adapter


def main(argv: list[str]) -> None:
    """Run the command."""
    args = _parse(argv)
    source = args.source.expanduser()
    if args.format == "gguf":
        return _to_gguf(args, source)
    if args.quant:
        raise UserError(f"--quant: found {args.quant}, which is for --format gguf. Add it, or leave --quant out.")
    target = (args.target or Path("exported") / source.resolve().name).expanduser()
    if (source / lora_files.CONFIG).is_file():
        tensors = export_adapter(source, args.base, target, args.base_model_name)
        print(f"{target}: a LoRA adapter of {tensors} tensors in PEFT's format")
        _tell_card(source, target)
        base = read_config(target / PEFT_CONFIG, "a PEFT adapter")["base_model_name_or_path"]
        print(f"AutoPeftModelForCausalLM loads its base from {base}, which must be in Hugging Face's format")
        return
    if args.base_model_name:
        raise UserError("--base_model_name: found for a model; it names the base of a LoRA adapter. Leave it out.")
    exported = export_directory(source, target, args.dtype, int(args.shard_gb * 1e9))
    print(f"{target}: {exported.family.title}, {exported.parameters:,} parameters in {', '.join(exported.dtypes)}")
    print(exported.tokenizer)
    print("read back: every tensor equal to the bit")
    _tell_card(source, target)
    if exported.needs_own_code:
        print("transformers runs this family with the .py files of the original model: copy them beside the weights")


def _to_gguf(args: argparse.Namespace, source: Path) -> None:
    if given := [name for name in ("dtype", "base_model_name") if getattr(args, name)]:
        raise UserError(f"--{given[0]}: found beside --format gguf, which has --quant. Leave it out.")
    quant = args.quant or "f16"
    is_adapter = (source / lora_files.CONFIG).is_file()
    name = f"{source.resolve().name}-{'lora' if is_adapter else quant}"
    target = (args.target or Path("exported") / name).expanduser()
    if is_adapter:
        if args.quant:
            raise UserError("--quant: found for an adapter, which stays in float32. Leave it out, or make merge first.")
        tensors = export_adapter_gguf(source, args.base, target)
        _tell_card(source, target)
        print(
            f"{target}: a LoRA adapter of {tensors} tensors as GGUF, for llama.cpp: llama-cli -m BASE.gguf --lora FILE"
        )
        return
    exported, file = export_gguf(source, target, quant)
    print(f"{file}: {exported.family.title}, {exported.parameters:,} parameters in {', '.join(exported.dtypes)}")
    print(exported.tokenizer)
    print("read back: configuration, weights and the ids of texts are the same")
    _tell_card(source, file.parent)
    print(f"llama.cpp: llama-cli -m {file}\nOllama: ollama create NAME -f {target / 'Modelfile'} && ollama run NAME")


def _tell_card(source: Path, target: Path) -> None:
    try:
        if write_card(source, target):
            print(f"{target / README}: how it was trained, for make push")
    except OSError as error:  # all that a model needs is there
        print(f"{target / README}: not written: {error.strerror}", file=sys.stderr)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/export.py", __doc__)
    parser.add_argument("source", type=Path, help="model directory, or directory of a LoRA adapter")
    parser.add_argument("target", type=Path, nargs="?", help="new directory; default ./exported/NAME OF SOURCE")
    parser.add_argument("--format", choices=["hf", "gguf"], default="hf", help="of the files; default: %(default)s")
    parser.add_argument("--quant", choices=[*QUANTS], help="type of the matrices in a GGUF file; default: f16")
    parser.add_argument("--base", type=Path, help="base model of an adapter; default: named by its configuration")
    parser.add_argument("--base_model_name", help="where PEFT finds the base: a name on Hugging Face's hub or a path")
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16", "float16"], help="dtype of the weights; default: unchanged"
    )
    parser.add_argument("--shard_gb", type=amount, default=5.0, help="largest file in GB; default %(default)s")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:], BEGINS_ANEW))
