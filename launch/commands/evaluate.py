r"""Measure what a model knows by lm-eval's tasks, prompts and scores, with the questions of local files.

lm-eval is lm-evaluation-harness. The first time, requirements/evaluate.lock is installed.

    python launch/commands/evaluate.py --model_name_or_path models/qwen3-8b \
        --tasks mmlu=data/mmlu --num_fewshot 5
    python launch/commands/evaluate.py --model_name_or_path models/qwen3-8b \
        --adapter_path checkpoints/lora --tasks gsm8k=data/gsm8k text=wiki.txt
    python launch/commands/evaluate.py --compare evaluations/qwen3-8b.json \
        evaluations/lora.json

A task is NAME=PATH; PATH alone where its first row shows what it is, or where it is a task in YAML. Names are mmlu,
ceval, cmmlu, arc, hellaswag, boolq, piqa and winogrande; gsm8k, squad, cmrc, qa, pairs, chat and advertisegen, whose
answers the model writes; text; and every task or group of lm-eval. PATH is a file (CSV, JSON lines, Parquet) or a
folder with the files of each split. An evaluation that is stopped goes on where it was. --compare says whether two
results differ by more than chance, with a paired bootstrap. A model that is too large for one card can use several:
--tensor_parallel_degree 2.
"""

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import math
import sys
from pathlib import Path
from typing import cast

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import GOES_ON, Parser, above_zero, not_negative
from launch.checkpoint.model_identity import base_fingerprint
from launch.entry import start_paddle
from launch.environment.optional_packages import require
from launch.errors import UserError
from launch.evaluation.comparison import compare, read_results
from launch.evaluation.task_results import Collected, require_none, write_results
from launch.families.arithmetic import require_divisible
from launch.families.encoding import NONE, encoding_of, template_line
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.guard import guarded
from launch.prediction.model_flags import DEVICES, add_weight_flags, check_weights, default_device
from launch.processes.orphans import die_with_parent
from launch.processes.sharded import add_degree, run_ranks, starts_ranks

POSITIONS = 2048  # where a model does not count them, as lm-evaluation-harness takes it
RESAMPLES = 1000  # for the standard errors of lm-eval's measures that have no formula
BLOCKS = ("weight_blocksize", "weight_double_quant", "weight_double_quant_block_size", "quantize_head")


def main(argv: list[str]) -> int:
    """Run the command."""
    args = _parse(argv)
    if args.compare:
        print("\n".join(compare(*map(read_results, args.compare))))
        return 0
    check_weights(args, args.adapter_path)
    output = args.output_file or Path("evaluations") / f"{Path(args.adapter_path or args.model_name_or_path).name}.json"
    require("lm-eval", "evaluate.lock")
    from launch.evaluation.tasks import load_tasks

    benchmarks = load_tasks(args.tasks, args)
    _check_output(output)
    _check_family(args.model_name_or_path, benchmarks)
    if starts_ranks(args.tensor_parallel_degree):
        require_divisible(load_config(args.model_name_or_path), args.tensor_parallel_degree)
        return run_ranks(Path(__file__), argv, args.tensor_parallel_degree, args.device == "cpu")
    die_with_parent()
    start_paddle(on_cpu=args.device == "cpu")
    report = _evaluate(args, benchmarks, output)
    if report:
        from lm_eval.utils import make_table  # pyright: ignore[reportMissingImports]

        print(f"{make_table(report)}\n{output}: the results, and each answer")
    return 0


def _evaluate(args: argparse.Namespace, benchmarks: list, output: Path) -> dict | None:
    """Return the results, on rank 0."""
    from lm_eval.evaluator import evaluate  # pyright: ignore[reportMissingImports]
    from lm_eval.utils import handle_non_serializable  # pyright: ignore[reportMissingImports]

    from launch.adapters.add import base_format
    from launch.adapters.quantized_layers import use_quantized
    from launch.checkpoint.ranks import check_world, rank
    from launch.evaluation.language_model import EvaluatedModel
    from launch.prediction.predictor import load_predictor
    from launch.training.device import set_device

    check_world()
    set_device(args.device)
    base = base_format(args)
    predictor = load_predictor(args.model_name_or_path, args.adapter_path, args.dtype, base)
    lines = [use_quantized(predictor.model, base)] if base else []
    tokenizer, config = predictor.tokenizer, predictor.config.to_dict()
    encoding = encoding_of(args, tokenizer, config, chat=args.apply_chat_template, use=True)
    lines.append(template_line(encoding.template))
    if rank() == 0:
        print("\n".join(lines), file=sys.stderr)
    positions = POSITIONS if predictor.positions == math.inf else int(predictor.positions)
    head, sizes = _head(args), {f"--{name}": getattr(args, name) for name in ("tokens_per_batch", "batch_size")}
    identity = hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()
    collected = Collected(output, identity, sizes)
    longest = args.max_new_tokens
    model = EvaluatedModel(predictor, encoding, positions, collected, args.tokens_per_batch, args.batch_size, longest)
    if rank() == 0:
        print("".join(f"{note}\n" for each in benchmarks for note in each.notes), end="", file=sys.stderr)
        collected.open()
    with contextlib.closing(collected):
        report = evaluate(
            model,
            {
                "tasks": {name: task for each in benchmarks for name, task in each.tasks.items()},
                "groups": {each.name: each.group for each in benchmarks if each.group},
            },
            limit=args.limit,
            bootstrap_iters=RESAMPLES,
            apply_chat_template=args.apply_chat_template,
            fewshot_as_multiturn=args.apply_chat_template,
        )
        if rank() != 0:
            return None
        report = head | cast(dict, report)
        write_results(output, report, handle_non_serializable)
        collected.finish()
    return report


def _check_family(model: str, benchmarks: list) -> None:
    family = family_of_config(load_config(model))
    kinds = {each.name: {task.OUTPUT_TYPE for task in each.tasks.values()} for each in benchmarks}
    scored = [name for name, of in kinds.items() if of != {"generate_until"}]
    if family.attention == "prefix" and scored:
        raise UserError(
            f"--tasks {' '.join(scored)}: {family.title} reads a question in both directions, for which the likelihood "
            "of a continuation is not defined. Evaluate the answers that it writes: gsm8k, squad, cmrc, qa, pairs."
        )


def _check_output(output: Path) -> None:
    """Check the output before the work, which may be long."""
    if output.is_dir():
        raise UserError(f"cannot write {output}: it is a folder. Name a file: --output_file.")
    require_none(output)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write {output}: {error.strerror}. Name a file in another folder: --output_file."
        ) from None


def _head(args: argparse.Namespace) -> dict:
    """Return the settings of the evaluation: a change of any of them makes other results."""
    from launch.checkpoint.manifest import sha256

    directory = Path(args.model_name_or_path)
    files = sorted(args.adapter_path.iterdir()) if args.adapter_path else []
    return {
        "model": args.model_name_or_path,
        "weights": base_fingerprint(directory) if directory.is_dir() else None,
        "adapter": str(args.adapter_path) if args.adapter_path else None,
        "adapter_files": {path.name: sha256(path) for path in files if path.is_file()},
        "dtype": args.dtype,
        "weight_quantize_algo": args.weight_quantize_algo,
        **{key: getattr(args, key) if args.weight_quantize_algo else None for key in BLOCKS},
        "apply_chat_template": args.apply_chat_template,
        "num_fewshot": args.num_fewshot,
        "split": args.split,
        "limit": args.limit,
        "max_new_tokens": args.max_new_tokens,
        "device": args.device,
        "versions": {name: importlib.metadata.version(name) for name in ("paddlenlp", "lm_eval")},
    }


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/evaluate.py", __doc__)
    add = parser.add_argument
    add("--model_name_or_path", help="model directory, or a name that PaddleNLP downloads")
    add("--adapter_path", type=Path, metavar="DIR", help="directory of a LoRA adapter or prefix")
    add("--tasks", nargs="+", default=[], metavar="NAME=PATH", help="what to evaluate; NAME= can be left out")
    add("--num_fewshot", type=not_negative, help="examples before each question; default: as the task says")
    add("--split", help="split to evaluate; default: as the task says, or the first that is there")
    add("--limit", type=above_zero, help="evaluate only the first so many of each task, which each subject is")
    add("--text_key", default="text", help="key of the texts to measure in their rows; default %(default)s")
    add("--max_bad_lines", type=not_negative, default=0, metavar="N", help="leave out up to N lines that are no texts")
    add("--apply_chat_template", action="store_true", help="ask as a chat, with the model's chat template")
    add("--chat_template", help="chat template: a name or a file; default: the tokenizer's or the family's")
    add("--tokens_per_batch", type=above_zero, default=4096, help="tokens read at once; default %(default)s")
    add("--max_new_tokens", type=above_zero, help="longest written answer in tokens; default: as the task says, or 256")
    add("--batch_size", type=above_zero, default=8, help="answers written at once; default %(default)s")
    add("--output_file", type=Path, help="file for the results; default: evaluations/NAME.json")
    add("--compare", nargs=2, type=Path, metavar="FILE", help="compare two results instead")
    add_weight_flags(add)
    add_degree(add)
    add("--device", choices=DEVICES, default=default_device(), help="where the model runs; default here: %(default)s")
    others = argparse.Namespace(src_length=1 << 40, max_length=0)  # what encoding_of reads beside flags
    args = parser.parse_args(argv, others)
    if not args.compare and not (args.model_name_or_path and args.tasks):
        parser.error("--model_name_or_path and --tasks are required, or --compare")
    if args.chat_template and not args.apply_chat_template:
        parser.error("--chat_template needs --apply_chat_template")
    if not args.apply_chat_template:
        args.chat_template = NONE
    return args


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:], GOES_ON))
