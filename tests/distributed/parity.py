"""Runs of one small training in many layouts, and how far they are from a single process."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from launch.checkpoint.weight_files import find_weights
from launch.reporting.records import read_summary, read_train_log
from tests.distributed.layouts import SINGLE, Layout

CASES = "tests.distributed.training_ranks"
STEPS = 10
EVALUATED_SAMPLES = 21

# Four units in the last place of a loss near 5.5 in float32; correct layouts have been seen to differ by two.
LOSS_TOLERANCE = 2e-6
GRAD_NORM_TOLERANCE = 1e-5
# Of a tensor after one SGD step: relative to its largest change. Wrong factors show as 0.1 and more. The rate is large
# because norms begin at 1, where float32 has steps of 1e-7, and their gradients are near 1e-3.
UPDATE_TOLERANCE = 1e-4
SGD_RATE = 64


@dataclass(frozen=True)
class Run:
    """A finished training: where it wrote, and what each rank saw (tests.distributed.observation)."""

    output: Path
    facts: list[dict]

    def column(self, key: str) -> np.ndarray:
        """One number of every logged step."""
        return np.array([record[key] for record in read_train_log(self.output) if "loss" in record])

    @property
    def summary(self) -> dict:
        return read_summary(self.output)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        return load_weights(self.output)


class Runs:
    """Trains one model once for each layout and flags, and keeps what has been trained.

    key_value_heads: of the model's 4 heads; fewer than 4 are grouped queries. method: flags of all runs. changes:
    of the LLaMA's configuration.
    """

    def __init__(self, ranks, root: Path, *method: str, key_value_heads: int = 4, changes: dict | None = None):
        self.ranks, self.root, self.method = ranks, root, method
        self._done: dict[tuple, Run] = {}
        ranks(1, f"{CASES}:make_material", str(root), key_value_heads, changes)
        self.initial_weights = load_weights(root / "model")

    def adamw(self, layout: Layout, *argv: str) -> Run:
        """Ten steps and an evaluation whose last batches are partly, or on some ranks wholly, padding."""
        flags = ["--do_eval", "1", "--eval_steps", str(STEPS), "--max_eval_samples", str(EVALUATED_SAMPLES)]
        flags += ["--per_device_eval_batch_size", "5"]
        return self._run(layout, "adamw", *flags, *argv)

    def sgd_step(self, layout: Layout, *argv: str) -> Run:
        """One step of plain SGD by SGD_RATE times the gradient, with nothing that hides a factor."""
        rate = str(SGD_RATE)
        flags = ["--max_steps", "1", "--learning_rate", rate, "--max_grad_norm", "0", "--weight_decay", "0"]
        return self._run(layout, "sgd", *flags, *argv)

    def _run(self, layout: Layout, optimizer: str, *argv: str) -> Run:
        key = (layout, optimizer, argv)
        if key not in self._done:
            output = self.root / f"run-{len(self._done)}"
            words = [*layout.argv, *self.method, *argv]
            facts = self.ranks(layout.processes, f"{CASES}:pretrain", str(self.root), str(output), words, optimizer)
            self._done[key] = Run(output, facts)
        return self._done[key]


def load_weights(directory: Path) -> dict[str, np.ndarray]:
    """Every whole tensor of a saved model by its name, however many ranks have saved it."""
    return {name: stored.open() for name, stored in find_weights(directory).items()}


@dataclass(frozen=True)
class Differences:
    """The largest differences of a layout to one process: of a loss, of a gradient norm (relative), of a weight
    after a step of plain SGD (relative to its tensor's largest change), of the evaluation loss."""

    loss: float
    grad_norm: float
    update: float
    evaluation: float


def differences(runs: Runs, layout: Layout, *argv: str) -> Differences:
    """argv: flags of the layout's runs alone."""
    single, split = runs.adamw(SINGLE), runs.adamw(layout, *argv)
    norms = split.column("grad_norm") / single.column("grad_norm")
    evaluations = [run.summary["evaluation"]["eval_loss"] for run in (single, split)]
    return Differences(
        loss=float(np.abs(split.column("loss") - single.column("loss")).max()),
        grad_norm=float(np.abs(norms - 1).max()),
        update=max(update_differences(runs, layout, *argv).values()),
        evaluation=abs(evaluations[1] - evaluations[0]),
    )


def beyond_tolerance(runs: Runs, layout: Layout, *argv: str) -> dict[str, float]:
    """The differences of a layout that are too large; those of updates by the names of their tensors."""
    found = differences(runs, layout, *argv)
    checked = [
        ("loss", found.loss, LOSS_TOLERANCE),
        ("gradient norm", found.grad_norm, GRAD_NORM_TOLERANCE),
        ("evaluation loss", found.evaluation, LOSS_TOLERANCE),
        *((name, value, UPDATE_TOLERANCE) for name, value in update_differences(runs, layout, *argv).items()),
    ]
    return {name: value for name, value, tolerance in checked if not value <= tolerance}


def update_differences(runs: Runs, layout: Layout, *argv: str) -> dict[str, float]:
    """Of each tensor after one plain SGD step, relative to its largest change.

    Raises AssertionError where names differ, or one process left a tensor as it was.
    """
    initial = runs.initial_weights
    expected, found = runs.sgd_step(SINGLE).weights, runs.sgd_step(layout, *argv).weights
    assert expected.keys() == found.keys() == initial.keys()
    changes = {name: float(np.abs(expected[name] - start).max()) for name, start in initial.items()}
    assert all(changes.values()), [name for name, change in changes.items() if not change]
    return {name: float(np.abs(found[name] - expected[name]).max()) / change for name, change in changes.items()}
