r"""Fine-tune the demo's model by several methods and compare them: LoRA of several ranks, prefix, all parameters.

    python launch/commands/demo.py finetune [--methods "lora r8 all" full] \
        [flags of finetune_generation.py]

Trains the model of `make demo` on questions about functions of the standard library and prints a table: trained
parameters, size of the result, loss on questions about modules the model has never seen, and ROUGE-L of its answers.
Other flags are passed on to each run: --max_steps 20 makes the demo shorter.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from data_tools.cli import Parser
from data_tools.formats.atomic import written_aside
from data_tools.stdlib_corpus import write_questions
from launch.checkpoint.safetensors_file import read_header
from launch.commands.demo import ONCE, ROOT, arguments_of, heading, run, starting_from_model
from launch.reporting.records import read_summary

INTERRUPTED = "the same command begins anew; --methods takes only some of the methods"
QUERY_VALUE = "q_proj v_proj"
RESULTS = "results.json"


@dataclass(frozen=True)
class Tuning:
    """A way to fine-tune. The learning rate of each was tuned separately.

    Attributes:
        name: In the table.
        flags: Of the run.
    """

    name: str
    flags: dict


TUNINGS = [
    *(
        Tuning(f"lora r{rank} {layers}", {"lora": 1, "lora_rank": rank, "learning_rate": rate} | targets)
        for layers, targets in (("q,v", {"lora_target_modules": QUERY_VALUE}), ("all", {}))
        for rank, rate in ((1, 1e-2), (4, 5e-3), (8, 5e-3), (64, 2e-3))
    ),
    Tuning("prefix 16", {"prefix_tuning": 1, "num_prefix_tokens": 16, "learning_rate": 0.3}),
    Tuning("full", {"learning_rate": 1e-3}),
]
COMMON = {
    "src_length": 64,
    "max_length": 112,
    "per_device_train_batch_size": 16,
    "per_device_eval_batch_size": 32,
    "max_steps": 200,
    "warmup_steps": 10,
    "lr_scheduler_type": "linear",
    "logging_steps": 50,
    "eval_steps": 1_000_000,  # once, at the end
    "do_eval": 1,
    "eval_with_do_generation": 1,
} | ONCE


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = Parser("python launch/commands/demo.py finetune", __doc__)
    names = [method.name for method in TUNINGS]
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=names,
        default=names,
        metavar="METHOD",
        help=f"methods to compare, of {', '.join(names)}",
    )
    args, flags = starting_from_model(parser, "finetune", argv)
    methods = [method for method in TUNINGS if method.name in args.methods]
    demo = FinetuneDemo(args.directory.resolve(), args.model.resolve(), flags, runs=1 + len(methods))
    demo.make_data()
    before = demo.evaluate_base()
    rows = [demo.finetune(method) for method in methods]
    with written_aside(demo.directory / RESULTS) as file:
        file.write((json.dumps({"before": before, "methods": rows}, indent=2) + "\n").encode())
    print_table(before, rows)


class FinetuneDemo:
    """Runs of finetune_generation.py, each in its own directory.

    Attributes:
        flags: For all of them.
        runs: How many.
    """

    def __init__(self, directory: Path, model: Path, flags: list[str], runs: int):
        self.directory, self.model, self.flags = directory, model, flags
        self.runs, self.begun = runs, 0
        self.data = directory / "data"

    def make_data(self) -> None:
        """Write the questions."""
        heading("questions about functions of the standard library, those to evaluate on about modules never seen")
        write_questions(self.data)
        for name in ("train.json", "dev.json"):
            lines = (self.data / name).read_text(encoding="utf-8").splitlines()
            print(f"{self.data / name}: {len(lines)} rows, the first {lines[0]}")

    def evaluate_base(self) -> dict:
        """Return the evaluation of the model as it is."""
        self._heading("before: the model as it is")
        return self._run(self.directory / "base", {"do_train": 0})["evaluation"]

    def finetune(self, method: Tuning) -> dict:
        """Return the row of a method in the table."""
        self._heading(method.name)
        output = self.directory / method.name.replace(" ", "-").replace(",", "")
        summary = self._run(output, {"do_train": 1} | method.flags)
        files = list(output.glob("*.safetensors"))
        return {
            "method": method.name,
            "trained": sum(tensor.nbytes // 4 for file in files for tensor in read_header(file)[0].values()),
            "bytes": sum(file.stat().st_size for file in files),
            "loss": summary["evaluation"]["eval_loss"],
            "rougel": summary["evaluation"]["eval_rougel"],
            "seconds": summary["seconds"],
        }

    def _heading(self, text: str) -> None:
        self.begun += 1
        heading(f"{self.begun} of {self.runs}: {text}")

    def _run(self, output: Path, flags: dict) -> dict:
        """Run a training and return its summary."""
        places = {"model_name_or_path": self.model, "dataset_name_or_path": self.data, "output_dir": output}
        arguments = arguments_of(places | COMMON | flags)
        run([sys.executable, ROOT / "launch" / "finetune_generation.py", *arguments, *self.flags])
        return read_summary(output)


def print_table(before: dict, rows: list[dict]) -> None:
    """Print the table of all methods."""
    table = Table(title="Fine-tuning compared: loss and ROUGE-L on modules never seen")
    for column in ("method", "trained", "kept", "loss\nbefore", "loss\nafter", "ROUGE-L", "seconds"):
        table.add_column(column, justify="left" if column == "method" else "right")
    table.add_row("as it is", "0", "", f"{before['eval_loss']:.3f}", "", f"{before['eval_rougel']:.1f}", "")
    for row in rows:
        table.add_row(
            row["method"],
            f"{row['trained']:,}",
            f"{row['bytes'] / 1e6:.2f} MB",
            f"{before['eval_loss']:.3f}",
            f"{row['loss']:.3f}",
            f"{row['rougel']:.1f}",
            f"{row['seconds']:.0f}",
        )
    Console().print(table)
