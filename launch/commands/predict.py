r"""Get answers from a model: a base, a base with a LoRA adapter or a prefix, or a merged model.

    python launch/commands/predict.py --model_name_or_path models/llama-7b \
        --adapter_path checkpoints/llama-7b-lora \
        --prompt "What does a tokenizer do?"
    python launch/commands/predict.py --model_name_or_path models/llama-7b \
        --data_file questions.json --output_file answers.json

Without --prompt and --data_file, each line of the standard input is a question, and its answer is shown while it is
generated. A data file has rows as for fine-tuning (docs/finetune.md), with or without answers. The output file has the
same rows with the key "prediction"; it is written as a whole or not at all. A model that is too large for one card can
use several: `python -m paddle.distributed.launch --gpus 0,1 launch/commands/predict.py ...`; on a CPU --nproc_per_node
2 --backend gloo. Or keep its linear layers in 8 or 4 bits: --weight_quantize_algo nf4. --plan 2x24 prints the memory
that this takes on two cards of 24 GB and loads nothing.
"""

import argparse
import math
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import MOST_CARDS, Parser, above_zero, not_negative, share, whole_number
from data_tools.dialogues.questions import read_questions
from data_tools.formats.json_files import NotJson, parse_json
from launch.entry import start_paddle
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.guard import guarded
from launch.prediction.model_flags import DEVICES, add_weight_flags, check_weights, default_device
from launch.processes.orphans import die_with_parent

LONGEST_ROW = 1 << 26  # bytes


def main(argv: list[str]) -> None:
    """Run the command."""
    args = _parse(argv)
    if args.plan:
        return _print_plan(args)
    check_weights(args, args.adapter_path)
    if args.output_file:
        _check_output(args.output_file, [Path(args.model_name_or_path), *filter(None, [args.adapter_path])])
    questions = read_questions(args.data_file, args.prompt_column) if args.data_file else []
    die_with_parent()
    start_paddle(on_cpu=args.device == "cpu")

    import paddle

    from launch.adapters.add import base_format
    from launch.adapters.quantized_layers import use_quantized
    from launch.checkpoint.ranks import check_world, rank
    from launch.generation.generate import Decoding
    from launch.prediction.predictor import answer_one_by_one, answer_rows, load_predictor
    from launch.training.device import set_device

    check_world()
    set_device(args.device)
    base = base_format(args)
    predictor = load_predictor(args.model_name_or_path, args.adapter_path, args.dtype, base)
    if base:
        line = use_quantized(predictor.model, base)
        if rank() == 0:
            print(line, file=sys.stderr)
    paddle.seed(args.seed)
    decoding = Decoding(args.max_new_tokens, args.temperature, args.top_k, args.top_p)
    if questions:
        answer_rows(predictor, questions, args, decoding)
    else:
        answer_one_by_one(predictor, args.prompt, args, decoding)


def _check_output(file: Path, read: list[Path]) -> None:
    """Raise UserError for a file in a directory that is read, and for an existing file without answers."""
    for directory in read:
        if directory.is_dir() and file.resolve().is_relative_to(directory.resolve()):
            raise UserError(f"--output_file: {file} is in {directory}, which is read. Name a file in another folder.")
    if file.exists() and not (file.is_file() and _has_answers(file)):
        raise UserError(f"--output_file: {file} is there and has no earlier answers. Name another, or remove it.")


def _has_answers(file: Path) -> bool:
    """Return whether the file's first row is one of answers, or the file is empty."""
    with open(file, "rb") as lines:
        first = lines.readline(LONGEST_ROW)
    try:
        row = parse_json(first, file)
    except NotJson:
        return not first
    return isinstance(row, dict) and "prediction" in row


def _print_plan(args: argparse.Namespace) -> None:
    """Print the memory that the same flags take on cards. Nothing is loaded."""
    from launch.families.arithmetic import require_divisible
    from launch.plan.hardware import card_of_memory
    from launch.plan.inference import plan_answers
    from launch.tape.quantized import Format

    base = None
    if args.weight_quantize_algo:
        blocks = (args.weight_blocksize, args.weight_double_quant, args.weight_double_quant_block_size)
        base = Format(args.weight_quantize_algo, *blocks, head=bool(args.quantize_head))
    cards, memory = args.plan
    config = load_config(args.model_name_or_path)
    require_divisible(config, cards)
    lengths = (args.batch_size if args.data_file else 1, args.src_length, args.max_new_tokens)
    plan = plan_answers(config, args.dtype or "float16", base, cards, *lengths)
    print("\n".join(plan.lines(card_of_memory(memory))))


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/predict.py", __doc__)
    add = parser.add_argument
    add("--model_name_or_path", required=True, help="model directory, or a name that PaddleNLP downloads")
    add(
        "--adapter_path",
        "--lora_path",
        "--prefix_path",
        type=Path,
        metavar="DIR",
        help="directory of a LoRA adapter or prefix",
    )
    add("--prompt", action="append", default=[], help="a question; can be repeated")
    add("--system", help="system message in front of each question of --prompt or of the standard input")
    add("--data_file", type=Path, help="file of questions: JSON lines or a JSON list")
    add("--prompt_column", help="key of the question in each row of --data_file; default: detected")
    add("--output_file", type=Path, help="file for the answers to --data_file; default: the terminal")
    add("--chat_template", help="chat template: a name, a file or none; default: that of the directory")
    add(
        "--src_length",
        type=above_zero,
        default=1024,
        help="longest question in tokens; the end of a longer one is kept",
    )
    add("--max_new_tokens", type=above_zero, default=128, help="longest answer in tokens")
    add("--temperature", type=temperature, default=0.0, help="sampling temperature; 0: always the most likely token")
    add("--top_k", type=not_negative, default=0, help="sample from the k most likely tokens; 0: from all")
    add("--top_p", type=share, default=1.0, help="sample from the most likely tokens with this total probability")
    add("--seed", type=not_negative, default=42, help="random seed of sampling")
    add("--batch_size", type=above_zero, default=8, help="questions of --data_file in one batch")
    add_weight_flags(add)
    add("--plan", type=_cards, metavar="CARDSxGB", help="only print the planned memory on these cards, such as 2x24")
    add("--device", choices=DEVICES, default=default_device(), help="where the model runs; default here: %(default)s")
    args = parser.parse_args(
        argv, argparse.Namespace(max_length=0)
    )  # of a sample with its answer, which encodings read
    if args.prompt and args.data_file:
        raise UserError("--prompt and --data_file: found both, give one.")
    if args.system and args.data_file:
        raise UserError('--system: found beside --data_file, whose rows have their own: {"role": "system", ...} first.')
    if args.output_file and not args.data_file:
        raise UserError("--output_file: found without --data_file, whose rows it would hold.")
    return args


def _cards(text: str) -> tuple[int, int]:
    """Return (cards, GB of each)."""
    cards, _, memory = text.partition("x")
    count, size = whole_number(cards, 1, MOST_CARDS), whole_number(memory, 0, 10_000)
    if count is None or size is None:
        raise argparse.ArgumentTypeError(f"found {text}, expected cards x GB of each, such as 2x24")
    return count, size


def temperature(text: str) -> float:
    """Parse a temperature of 0 or more."""
    if not 0 <= float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"found {text}, expected 0 or more")
    return float(text)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
