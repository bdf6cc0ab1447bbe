"""Teach the demo's model a preference whose rule can be checked: strings in double quotes, by DPO with a LoRA.

    python launch/commands/demo.py align [flags of run_dpo.py]

Each pair is a line of the standard library with its string in both styles of quotes; the one with double quotes is
chosen. The LoRA is merged into the model of `make demo`, and both are compared on lines of modules that neither has
seen: how often the chosen response is likelier, and how often the model begins with double quotes by itself. Other
flags are passed on to each run: --max_steps 20 makes the demo shorter.
"""

import json
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from data_tools.cli import BEGINS_ANEW, Parser
from data_tools.formats.atomic import written_aside
from data_tools.stdlib_corpus import write_preferences
from launch.commands.demo import ONCE, ROOT, arguments_of, heading, run, starting_from_model
from launch.entry import start_paddle
from launch.errors import UserError
from launch.reporting.records import read_summary

INTERRUPTED, RESULTS = BEGINS_ANEW, "results.json"
MADE = "made-by-demo-align"  # an empty file in the folders that the demo has made, whose files it may replace
CONTINUED, SHOWN = 64, 4  # prompts: continued by both models, and shown
COMMON = ONCE | {
    "src_length": 96,
    "max_length": 160,
    "per_device_train_batch_size": 16,
    "per_device_eval_batch_size": 32,
    "loss_type": "sigmoid",
    "beta": 0.1,
    "do_eval": 1,
}
TRAINING = {
    "do_train": 1,
    "lora": 1,
    "lora_rank": 8,
    "sft_loss_ratio": 1,  # so that the model comes to write what it prefers (docs/align.md)
    "learning_rate": 2e-3,
    "lr_scheduler_type": "linear",
    "warmup_steps": 5,
    "max_steps": 40,
    "logging_steps": 10,
    "eval_steps": 1_000_000,  # once, at the end
}


def main(argv: list[str]) -> None:
    """Run the command."""
    args, flags = starting_from_model(Parser("python launch/commands/demo.py align", __doc__), "align", argv)
    base, directory = args.model.resolve(), args.directory.resolve()
    claim(directory, base, MADE)
    demo = AlignDemo(directory, flags)
    heading("1 of 6: pairs of lines of the standard library, those to evaluate on of modules never seen")
    write_preferences(demo.data)
    print((demo.data / "train.json").read_text(encoding="utf-8").partition("\n")[0])
    heading("2 of 6: before: how often the model finds the chosen response likelier")
    before: dict = {"accuracy": demo.accuracy(base, directory / "before")}
    heading("3 of 6: DPO with a LoRA")
    demo.train(base)
    heading("4 of 6: the LoRA merged into the model")
    demo.merge(base)
    heading("5 of 6: after")
    after: dict = {"accuracy": demo.accuracy(demo.merged, directory / "after")}
    heading("6 of 6: what both models write")
    prompts = demo.prompts()
    before["texts"], after["texts"] = continued([base, demo.merged], prompts)
    with written_aside(directory / RESULTS) as file:
        results = {"prompts": prompts, "before": before, "after": after}
        file.write((json.dumps(results, indent=2) + "\n").encode())
    print_examples(prompts, before["texts"], after["texts"])
    print_table(before, after)
    print(f"The model: {demo.merged}; the LoRA alone: {demo.adapter}. To ask it: docs/align.md")


def claim(directory: Path, base: Path | None, mark: str) -> None:
    """Raise UserError where a demo would replace a folder that it has not made, or the model that it starts from.

    mark: An empty file in the folders that it has made.
    """
    if base and base.is_relative_to(directory):
        raise UserError(
            f"--directory {directory}: found --model {base} in it, and the demo makes all files there anew. Name "
            "another folder."
        )
    if directory.exists() and any(directory.iterdir()) and not (directory / mark).is_file():
        raise UserError(
            f"--directory {directory}: found files that are not of this demo, allowed: a new or empty folder, or one "
            "that it has made. Name another, or remove it."
        )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / mark).touch()


class AlignDemo:
    """The steps of the demo.

    Attributes:
        flags: For all runs of run_dpo.py, each in its own directory.
    """

    def __init__(self, directory: Path, flags: list[str]):
        self.flags = flags
        self.data, self.adapter, self.merged = (directory / name for name in ("data", "adapter", "model"))

    def accuracy(self, model: Path, output: Path) -> float:
        """Return the share of the pairs of dev.json whose chosen response is the likelier one."""
        self._run(model, output, {"do_train": 0, "reference_free": 1})
        return read_summary(output)["evaluation"]["eval_accuracy"]

    def train(self, model: Path) -> None:
        """Train the adapter."""
        self._run(model, self.adapter, TRAINING)

    def merge(self, base: Path) -> None:
        """Merge the adapter."""
        places = {"model_name_or_path": base, "adapter_path": self.adapter, "output_dir": self.merged}
        shutil.rmtree(self.merged, ignore_errors=True)  # of an earlier demo: merge replaces nothing
        run([sys.executable, ROOT / "launch" / "commands" / "merge.py", *arguments_of(places)])

    def prompts(self) -> list[str]:
        """Return CONTINUED prompts of dev.json, spread over all modules."""
        rows = [json.loads(line) for line in (self.data / "dev.json").read_text(encoding="utf-8").splitlines()]
        return [row["prompt"] for row in rows[:: max(1, len(rows) // CONTINUED)][:CONTINUED]]

    def _run(self, model: Path, output: Path, flags: dict) -> None:
        places = {"model_name_or_path": model, "dataset_name_or_path": self.data, "output_dir": output}
        arguments = arguments_of(places | COMMON | flags)
        run([sys.executable, ROOT / "launch" / "run_dpo.py", *arguments, *self.flags])


def continued(models: list[Path], prompts: list[str]) -> list[list[str]]:
    """Return what each model generates behind each prompt."""
    start_paddle(on_cpu=True)
    from launch.prediction.predictor import continuations

    return [continuations(model, prompts, max_new_tokens=16, batch_size=16) for model in models]


def following(texts: list[str]) -> int:
    """Return how many continuations follow the rule: they begin with a string in double quotes."""
    return sum(text.lstrip().startswith('"') for text in texts)


def print_examples(prompts: list[str], before: list[str], after: list[str]) -> None:
    """Print the last line of some prompts, and the rest of it by both models."""
    for number in range(0, len(prompts), max(1, len(prompts) // SHOWN)):
        line = prompts[number].rpartition("\n")[2].strip()
        for name, texts in (("before", before), ("after", after)):
            print(f"{name:>6}  {line} {texts[number].strip().partition(chr(10))[0]}")
        print()


def print_table(before: dict, after: dict) -> None:
    """Print the table of both models."""
    table = Table(title="Double quotes preferred, on modules never seen")
    for column in ("", "before", "after"):
        table.add_column(column, justify="right" if column else "left")
    accuracies = (f"{one['accuracy']:.1%}" for one in (before, after))
    table.add_row("pairs whose chosen response is likelier", *accuracies)
    shares = (f"{following(one['texts'])} of {len(one['texts'])}" for one in (before, after))
    table.add_row("continuations that begin with double quotes", *shares)
    Console().print(table)
