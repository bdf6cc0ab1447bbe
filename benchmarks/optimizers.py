"""The loss of optimizers that keep less, beside that of AdamW in float32, after as many steps of the same training.

    .venv/bin/python benchmarks/optimizers.py                      # all, 1,000 steps: some minutes on 2 free cores
    .venv/bin/python benchmarks/optimizers.py adafactor --steps 50
    .venv/bin/python benchmarks/optimizers.py --markdown    # writes the page of the stored results

The corpus is that of `make demo`, rates and weight decay are those of recipes/tiny/pretrain.sh, and the model is its
llama-tiny with a quarter of the width and 2 layers, from random weights; a step has 4 x 32 tokens. What is not in
float32 runs as recipes/methods/finetune-1gpu.sh: the weights in bfloat16 alone, updated in the backward pass. A CPU has
few operators in bfloat16: those of the tests compute in float32 and round where an operator ends
(tests/checkpoint/half_arithmetic.py).
"""

import json
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

from benchmarks.cpu_training import machine_facts
from benchmarks.page import conditions, put, stored_parser
from launch.commands.demo import ROOT, Demo
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.reporting.markdown import markdown
from launch.reporting.records import package_versions, read_summary, read_train_log
from tests.ranks import RankServer
from tests.runs import as_words

RESULTS = ROOT / "benchmarks" / "results" / "optimizers.json"
IN_BACKWARD = {"bf16": 1, "fp16_opt_level": "O2", "update_in_backward": 1, "loss_chunk_tokens": 256}
OPTIMIZERS = {
    "adamw": {"optim": "adamw"},
    "adamw_8bit": IN_BACKWARD | {"optim": "adamw_8bit", "offload_optim": 1},
    "adafactor": IN_BACKWARD | {"optim": "adafactor"},
}
SIZES = {"hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 2}
HALF = "tests.checkpoint.half_ranks:observe"


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = stored_parser(__doc__)
    parser.add_argument("optimizer", nargs="*", metavar="OPTIMIZER", help=f"of: {', '.join(OPTIMIZERS)}")
    parser.add_argument("--steps", type=int, default=1000, help="steps of each; default %(default)s")
    parser.add_argument("--demo", type=Path, default=ROOT / "build" / "demo", help="folder of the demo's corpus")
    args = parser.parse_args(argv)
    if args.markdown:
        return put("optimizers", "low-memory", page(json.loads(RESULTS.read_text())))
    if unknown := set(args.optimizer) - set(OPTIMIZERS):
        parser.error(f"no optimizer {', '.join(sorted(unknown))}; there are: {', '.join(OPTIMIZERS)}")
    demo = Demo(args.demo.resolve())
    demo.make_data()
    report = {"machine": machine_facts(1), "versions": package_versions(), "steps": args.steps, "loss": {}}
    for name in args.optimizer or OPTIMIZERS:
        report["loss"][name] = loss_of(name, demo, args.steps)
        print(name, report["loss"][name], flush=True)
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


def loss_of(name: str, demo: Demo, steps: int) -> dict[str, float]:
    """Train by an optimizer; return the first loss, and that of the evaluation at the end."""
    flags = {
        "continue_training": 0,
        "tokenizer_name_or_path": demo.tokenizer,
        "input_dir": demo.train_data.parent,
        "split": "949,50,1",
        "max_seq_length": 32,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 40,
        "max_eval_samples": 400,
        "learning_rate": 1e-3,
        "min_learning_rate": 1e-4,
        "lr_scheduler_type": "cosine",
        "warmup_ratio": 0.02,
        "weight_decay": 0.1,
        "max_grad_norm": 1.0,
        "max_steps": steps,
        "save_strategy": "no",
        "eval_steps": steps,
        "evaluation_strategy": "steps",
        "logging_steps": 50,
        "do_train": 1,
        "do_eval": 1,
        "device": "cpu",
        "report_to": "none",
    }
    ranks = RankServer()
    with tempfile.TemporaryDirectory() as folder:
        model, output = Path(folder) / "model.json", Path(folder) / "out"
        model.write_text(json.dumps(load_config("llama-tiny") | SIZES))
        words = as_words(flags | OPTIMIZERS[name] | {"model_name_or_path": model, "output_dir": output})
        observers = [HALF] if OPTIMIZERS[name].get("bf16") else []
        [said] = ranks(1, "tests.runs_ranks:train", "pretraining", words, observers, time_limit=7200)
        ranks.close()
        if said["exit_code"]:
            raise UserError(f"{name} failed:\n{said['stderr']}")
        first = read_train_log(output)[0]["loss"]
        return {"first": first, "evaluation": read_summary(output)["evaluation"]["eval_loss"]}


def page(report: dict) -> str:
    """Return the page of the results: a table, and where they were measured."""
    usual = report["loss"]["adamw"]["evaluation"]
    rows = []
    for name, loss in report["loss"].items():
        flags = " ".join(f"--{flag} {value}" for flag, value in OPTIMIZERS[name].items())
        apart = f"{loss['evaluation'] / usual - 1:+.2%}"
        rows.append([f"`{flags}`", f"{loss['first']:.3f}", f"{loss['evaluation']:.3f}", apart])
    heads = ["flags beside the recipe's", "first loss", f"loss after {report['steps']:,} steps", "to AdamW"]
    return f"{markdown(heads, rows, range(1, 4))}\n\n{conditions(report)}"


if __name__ == "__main__":
    main(sys.argv[1:])
