"""Runs of one small fine-tuning in many layouts, in full or by LoRA: what tests.distributed.parity compares."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tests.distributed.layouts import SINGLE, Layout
from tests.distributed.parity import Run, load_weights
from tests.training.finetune_material import argv

FINETUNE = "tests.training.finetune_ranks:train"
STEPS = 6
SGD_RATE = 64


class FinetuneRuns:
    """Trains once for each layout, and keeps what has been trained. Samples differ in length, and so do micro batches.

    root: with a model and dialogues of tests.training.finetune_material. method: flags.
    """

    def __init__(self, ranks, root: Path, *method: str):
        self.ranks, self.root, self.method = ranks, root, method
        self.output = root / "-".join(["runs", *method]).replace("--", "")
        self._done: dict[tuple, Run] = {}

    @property
    def initial_weights(self) -> dict[str, np.ndarray]:
        return load_weights(self.root / "model")

    def adamw(self, layout: Layout, *argv: str) -> Run:
        """Six steps and an evaluation whose last batches are partly padding."""
        flags = ["--do_eval", "1", "--max_steps", str(STEPS), "--per_device_eval_batch_size", "5", "--eval_steps", "99"]
        return self._run(layout, "adamw", *flags, "--weight_decay", "0.1", *argv)

    def sgd_step(self, layout: Layout, *argv: str) -> Run:
        return self.sgd(layout, 1, *argv)

    def sgd(self, layout: Layout, steps: int, *argv: str) -> Run:
        """Steps of plain SGD, which hides no factor of a gradient."""
        rate = ["--max_steps", str(steps), "--learning_rate", str(SGD_RATE)]
        return self._run(layout, "sgd", *rate, "--max_grad_norm", "0", "--weight_decay", "0", *argv)

    def finished(self, output: Path, facts: list[dict]) -> Run:
        return Run(output, facts)

    def _run(self, layout: Layout, optimizer: str, *flags: str) -> Run:
        key = (layout, optimizer, flags)
        if key not in self._done:
            output = self.output / str(len(self._done))
            words = [*argv(self.root, output), *layout.argv, *self.method, *flags]
            if layout.pipeline > 1:
                words += ["--pipeline_parallel_config", "disable_p2p_cache_shape"]
            self._done[key] = self.finished(output, self.ranks(layout.processes, FINETUNE, words, optimizer))
        return self._done[key]


class LoraRuns(FinetuneRuns):
    """The same for adapters. Their second halves are 0 at first, so the first halves have a gradient from the second
    step on: two steps are compared, relative to what the second changes."""

    @property
    def initial_weights(self) -> dict[str, np.ndarray]:
        return self.sgd(SINGLE, 1).weights

    def sgd_step(self, layout: Layout, *argv: str) -> Run:
        return self.sgd(layout, 2, *argv)

    def finished(self, output: Path, facts: list[dict]) -> Run:
        return AdapterRun(output, facts)


class PrefixRuns(FinetuneRuns):
    """The same for prefixes, whose numbers have gradients from the first step on."""

    @property
    def initial_weights(self) -> dict[str, np.ndarray]:
        return self._run(SINGLE, "sgd", "--max_steps", "1", "--learning_rate", "0", "--weight_decay", "0").weights

    def finished(self, output: Path, facts: list[dict]) -> Run:
        return AdapterRun(output, facts)


class AdapterRun(Run):
    @property
    def weights(self) -> dict[str, np.ndarray]:
        files = sorted(self.output.glob("peft_model-*.safetensors"))
        return {name: tensor for file in files for name, tensor in load_file(file).items()}
