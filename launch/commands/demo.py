"""Pretrain a small model from nothing: corpus, tokenizer, training, evaluation, some continuations.

    python launch/commands/demo.py [--directory build/demo] [recipe flags]
    python launch/commands/demo.py finetune --help    # starts from its model
    python launch/commands/demo.py align --help       # likewise
    python launch/commands/demo.py chat --help        # a real chat model
    python launch/commands/demo.py tools --help       # the same one calls tools
    python launch/commands/demo.py grpo --help        # rewards alone

The corpus is the source of Python's standard library, so nothing is downloaded. Data of an earlier demo are used
again. Other flags are passed on to recipes/tiny/pretrain.sh: --max_steps 200 makes the demo shorter.
"""

import argparse
import os
import sys
import time
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not this folder

from data_tools.cli import Parser
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.summary import unigram_cross_entropy
from data_tools.language import localized
from data_tools.terminal import has_colours
from launch.entry import start_paddle
from launch.errors import UserError
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.guard import guarded
from launch.preflight.report import Finding, print_findings
from launch.processes.orphans import run_child
from launch.reporting.announce import plot_losses
from launch.reporting.records import read_summary, read_train_log

PROMPTS = ["def __init__(self", "import os\n", "    if not isinstance(", "    for line in "]
VOCABULARY = 4096
# Natural text spreads around the closed form by a per cent or two: frequent tokens share one random row of the head.
FIRST_LOSS_TOLERANCE = 0.03
# A model that has learnt only how frequent each token is reaches the unigram cross-entropy and no less.
HELD_OUT_MARGIN_NATS = 1.5
INTERRUPTED = "the same command uses the data that are made, and begins the training anew"
EVALUATIONS = (
    "The evaluations above were on the 5 % of the training corpus that --split sets aside. This one is on other "
    "modules, whole; the check at the end takes it."
)
KNOWS = "Model and tokenizer know Python's source alone: Chinese, or any other text, is but bytes to them."
NEXT_COMMANDS = """\
Next:
  make lora-tiny                    a LoRA on this model (2 minutes)
  make demo-finetune                this model fine-tuned in every way, compared (10 minutes)
  make demo-align                   DPO on this model: a preference that can be checked (5 minutes)
  make dashboard                    the curves of this run in the browser
  make rehearse-pretrain-llama7b    the 8-card LLaMA-7B recipe, rehearsed on this machine's CPU
  make print-pretrain-llama7b       the command that eight cards would run
  make help                         everything else"""


# Flags of the other demos' runs: on the CPU, from the first step, without checkpoints on the way.
ONCE = {
    "save_steps": 1_000_000,
    "resume_from_checkpoint": "none",
    "overwrite_output_dir": 1,
    "device": "cpu",
    "report_to": "none",
}
OTHERS = ("finetune", "align", "chat", "tools", "grpo")  # launch/commands/demo_X.py


def start(argv: list[str]) -> int:
    """Run the demo that the first word names, the pretraining without one. Return the exit code."""
    if argv[:1] not in [[name] for name in OTHERS]:
        return guarded(main, argv, INTERRUPTED)
    other = import_module(f"launch.commands.demo_{argv[0]}")
    return guarded(other.main, argv[1:], other.INTERRUPTED)


def starting_from_model(parser: Parser, name: str, argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the arguments of a demo that starts from this one's model, and the flags for its runs.

    Raises:
        UserError: If there is no model.
    """
    parser.add_argument(
        "--model",
        type=Path,
        default=ROOT / "build" / "demo" / "model",
        help="model to start from; default build/demo/model",
    )
    folder = f"build/demo-{name}"
    parser.add_argument("--directory", type=Path, default=ROOT / folder, help=f"folder for all files; default {folder}")
    args, flags = parser.parse_known_args(argv)
    if not (args.model / "config.json").is_file():
        raise UserError(f"{args.model}: no model. Make one first: make demo")
    return args, flags


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = Parser("python launch/commands/demo.py", __doc__)
    parser.add_argument(
        "--directory", type=Path, default=ROOT / "build" / "demo", help="folder for all files; default build/demo"
    )
    args, recipe_flags = parser.parse_known_args(argv)
    started = time.monotonic()
    demo = Demo(args.directory.resolve())
    demo.make_data()
    demo.pretrain(recipe_flags)
    demo.evaluate()
    demo.generate()
    passed = demo.check()
    print(f"\nThe demo took {(time.monotonic() - started) / 60:.1f} minutes. The model: {demo.model}\n{NEXT_COMMANDS}")
    if not passed:
        raise UserError("the demo's model is not what it should be: see the faults above")


class Demo:
    """The steps of the demo. Each writes its result into its own directory."""

    def __init__(self, directory: Path):
        self.text = directory / "text"
        self.tokenizer = directory / "tokenizer"
        self.train_data = directory / "data" / "train"
        self.held_out_data = directory / "held_out" / "held_out"
        self.model = directory / "model"
        self.evaluation = directory / "evaluation"

    def make_data(self) -> None:
        """Make corpus and tokenizer."""
        heading("1 of 5: the standard library as a corpus, a tokenizer trained on it, .bin/.idx written and verified")
        train_text, held_out_text = self.text / "train.jsonl", self.text / "heldout.jsonl"
        if not held_out_text.exists():
            self._tool("stdlib_corpus", "--output", self.text)
        if not (self.tokenizer / "tokenizer_config.json").exists():
            size = ("--vocab_size", VOCABULARY)
            self._tool("tokenizer", "--input", train_text, "--output", self.tokenizer, *size)
        for text, prefix in [(train_text, self.train_data), (held_out_text, self.held_out_data)]:
            if not prefix.with_suffix(".idx").exists():
                self._tool("tokenize", "--input", text, "--tokenizer", self.tokenizer, "--output", prefix)
            self._tool("verify", prefix, "--tokenizer", self.tokenizer)

    def pretrain(self, recipe_flags: list[str]) -> None:
        """Pretrain the model."""
        heading("2 of 5: pretraining with sharding stage 2 on two processes (recipes/tiny/pretrain.sh)")
        variables = {
            "DATA": str(self.train_data.parent),
            "OUTPUT": str(self.model),
            "ACTION": "run",
        }
        flags = ["--tokenizer_name_or_path", self.tokenizer, "--overwrite_output_dir", 1, *recipe_flags]
        run(["bash", ROOT / "recipes/tiny/pretrain.sh", *flags], variables)
        plot_losses(read_train_log(self.model))

    def evaluate(self) -> None:
        """Evaluate the model on held-out data."""
        heading("3 of 5: the held-out loss: evaluation on modules of the library that no training has seen")
        print(localized(EVALUATIONS))
        flags = {
            "model_name_or_path": self.model,
            "input_dir": self.held_out_data,
            "split": "0,1,0",
            "output_dir": self.evaluation,
            "max_seq_length": 256,
            "max_eval_samples": -1,
            "per_device_eval_batch_size": 8,
            "do_eval": 1,
            "device": "cpu",
            "report_to": "none",
        }
        run([sys.executable, ROOT / "launch/run_pretrain.py", *arguments_of(flags)])

    def generate(self) -> None:
        """Print what the model generates."""
        heading("4 of 5: what the model writes")
        print(localized(KNOWS))
        start_paddle(on_cpu=True)
        from launch.prediction.predictor import continuations

        for prompt, text in zip(PROMPTS, continuations(self.model, PROMPTS, max_new_tokens=48), strict=True):
            shown = f"\033[2m{text}\033[0m" if has_colours(sys.stdout) else text
            print(f"--- prompt:\n{prompt.rstrip()}\n--- continued by the model:\n{prompt}{shown}")

    def check(self) -> bool:
        """Print what was checked. Returns whether everything is right."""
        heading("5 of 5: is it right?")
        first_loss = read_train_log(self.model)[0]["loss"]  # also of a run that was resumed, unlike its summary's
        held_out_loss = read_summary(self.evaluation)["evaluation"]["eval_loss"]
        findings = [
            first_loss_check(first_loss, self.model),
            held_out_check(held_out_loss, unigram_cross_entropy(IndexedDataset(self.held_out_data))),
        ]
        print_findings(findings, sys.stdout)
        return all(finding.ok for finding in findings)

    def _tool(self, name: str, *arguments) -> None:
        run([sys.executable, "-m", f"data_tools.{name}", *arguments])


def first_loss_check(first_loss: float, model: Path | str) -> Finding:
    """Check that the loss before the first update is random weights': ln V + h sigma^2 / 2, within 3 %."""
    expected = ModelShape.from_config(load_config(str(model))).first_loss
    deviation = first_loss / expected - 1
    ok = abs(deviation) <= FIRST_LOSS_TOLERANCE
    return Finding(
        ok=ok,
        subject="first loss",
        found=f"{first_loss:.3f}, expected ln V + h sigma^2/2 = {expected:.3f} ({deviation:+.2%}, allowed 3 %)",
        fix="" if ok else "weights, labels or loss are not what they should be: no step has been made yet",
    )


def held_out_check(held_out_loss: float, unigram: float) -> Finding:
    """Check that the model predicts unseen text better than token frequencies could, by at least 1.5 nats a token."""
    margin = unigram - held_out_loss
    ok = margin >= HELD_OUT_MARGIN_NATS
    return Finding(
        ok=ok,
        subject="held-out loss",
        found=f"{held_out_loss:.3f}, {margin:.2f} nats below the unigram cross-entropy {unigram:.3f} (needed: 1.5)",
        fix="" if ok else "train longer (--max_steps), or the labels do not belong to the inputs",
    )


def heading(text: str) -> None:
    """Print a heading."""
    print(f"\n== {text}", flush=True)


def arguments_of(flags: dict) -> list[str]:
    """Return each flag and the words of its value. A path is one word: it may contain spaces."""
    values = {name: [str(value)] if isinstance(value, Path) else str(value).split() for name, value in flags.items()}
    return [word for name, words in values.items() for word in (f"--{name}", *words)]


def run(command: list, variables: dict[str, str] | None = None) -> None:
    """Run a command with its output on the terminal.

    Raises:
        UserError: If it fails.
    """
    words = [str(word) for word in command]
    exit_code = run_child(words, os.environ | (variables or {}), ROOT)
    if exit_code != 0:
        raise UserError(f"this step ended with exit code {exit_code}: {' '.join(words[:3])} ...")


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
