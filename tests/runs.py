"""Trained runs as data: each is trained when a test first asks for it, then read by every other (tests/store.py).

    run = runs("finetuning", layout=TP2, lora=1)     # flags beside those of USUAL
    run.column("loss"), run.summary, run.weights, run.stdout, run.facts
    runs.continued("finetuning", layout=TP2, lora=1) # from the checkpoint on the way to the end

Before a test asks for a run of its own it looks in CELLS for one that will do: runs.cell("lora-tp2").
What is there is read alone: a test that changes or continues it copies it to its tmp_path.
"""

import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from launch.checkpoint.weight_files import find_weights
from launch.reporting.records import read_summary, read_train_log
from tests.distributed.layouts import SINGLE, Layout
from tests.ranks import RankServer
from tests.store import kept

RANKS = "tests.runs_ranks"
OBSERVERS = {
    "pretraining": ["tests.distributed.observation:observe"],
    "finetuning": ["tests.training.finetune_ranks:look"],
}
SGD, SGD_RATE = f"{RANKS}:plain_sgd", 64
SEQUENCE_LENGTH = 32
EVALUATED_SAMPLES = 12  # in batches of 5: the last are partly, or on some ranks wholly, padding
VOCABULARY = 384
STEPS = 6  # of 8 samples; half of them end in the second epoch: of 23 samples or of few dialogues
FEW_PAIRS, FEW_PREFERENCES, SHORT_PAIRS = 20, 22, 7  # rows, the same in train and dev


@dataclass(frozen=True)
class Run:
    """A training that ended well: where it wrote, and what each rank said and saw."""

    output: Path
    ranks: list[dict]

    @property
    def stdout(self) -> str:
        return self.ranks[0]["stdout"]

    @property
    def facts(self) -> list[dict]:
        """What observers have seen on each rank."""
        return [one["facts"] for one in self.ranks]

    @property
    def steps(self) -> list[dict]:
        return [record for record in read_train_log(self.output) if "learning_rate" in record]

    def column(self, key: str) -> np.ndarray:
        """Return one number of every logged step."""
        return np.array([record[key] for record in self.steps])

    @property
    def summary(self) -> dict:
        return read_summary(self.output)

    @property
    def evaluation(self) -> dict:
        return self.summary["evaluation"]

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The trained tensors by name: of the model, or of the adapter where there is one."""
        if files := sorted(self.output.glob("peft_model-*.safetensors")):
            return {name: tensor for file in files for name, tensor in load_file(file).items()}
        return load_weights(self.output)


def load_weights(directory: Path) -> dict[str, np.ndarray]:
    """Return every whole tensor of a saved model by its name, however many ranks have saved it."""
    return {name: stored.open() for name, stored in find_weights(directory).items()}


class Runs:
    """Trains what is asked for, and keeps it."""

    def __init__(self, ranks: RankServer):
        self.ranks = ranks

    @cached_property
    def material(self) -> Path:
        """The folder with models, dialogues and a corpus: see make_material in tests/runs_ranks.py."""
        return kept("material", lambda folder: self.ranks(1, f"{RANKS}:make_material", str(folder)))[0]

    def usual(self, method: str, model: str = "model") -> dict:
        """Return the flags that runs of a method have if no others are given."""
        flags = {
            "model_name_or_path": self.material / model,
            "max_steps": STEPS,
            "save_steps": STEPS // 2,
            "logging_steps": 1,
            "learning_rate": 1e-3,
            "lr_scheduler_type": "constant",
            "max_grad_norm": 1.0,
            "weight_decay": 0.1,
            "do_train": 1,
            "do_eval": 1,
            "eval_steps": 99,
            "per_device_eval_batch_size": 5,
            "unified_checkpoint": 1,
            "device": "cpu",
            "cpu_fast": "off",
            "report_to": "none",
        }
        if method == "pretraining":
            return flags | {
                "input_dir": self.material / "corpus",
                "split": "13,7,0",
                "max_seq_length": SEQUENCE_LENGTH,
                "max_eval_samples": EVALUATED_SAMPLES,
            }
        rows = "few-pairs" if method in ("finetuning", "reinforcement") else "few-preferences"
        return flags | {"dataset_name_or_path": self.material / rows, "src_length": 48, "max_length": 96}

    def words(self, method: str, layout: Layout = SINGLE, model: str = "model", **flags) -> dict:
        """Return all flags of a run but its --output_dir."""
        return self.usual(method, model) | layout.flags | layout.batch | flags

    def __call__(
        self, method: str, *, layout: Layout = SINGLE, model: str = "model", processes: int = 0, sgd: int = 0, **flags
    ) -> Run:
        """Return the run of a method in a layout. processes: of data parallelism, where flags say the batches.

        sgd: that many steps of plain SGD by SGD_RATE times the gradient, with nothing that hides a factor. flags: a
        list is words that stay whole; observers are functions of ranks, see tests.runs_ranks.train.
        """
        layout = Layout(data=processes) if processes else layout
        return self._trained(method, layout, model, sgd, flags, None)

    def continued(self, method: str, *, before: Layout | None = None, layout: Layout = SINGLE, **flags) -> Run:
        """Return the run that goes on from the first checkpoint of the same run, which was in layout `before` where it
        is given."""
        flags = dict(flags)
        model = flags.pop("model", "model")
        whole = self(method, layout=before or layout, model=model, **flags)
        return self._trained(method, layout, model, 0, flags, whole.output)

    def said(self, method: str, jobs: dict[str, dict]) -> dict[str, dict]:
        """Return what each of some runs of one process said, made one after the other and not kept. jobs: the flags of
        each, with its --output_dir."""
        words = [as_words(self.words(method, **flags)) for flags in jobs.values()]
        [said] = self.ranks(1, f"{RANKS}:train_all", method, words)
        return dict(zip(jobs, said, strict=True))

    def _trained(self, method: str, layout: Layout, model: str, sgd: int, flags: dict, whole: Path | None) -> Run:
        more = (flags := dict(flags)).pop("observers", [])
        words = self.words(method, layout, model, **flags)
        if sgd:
            words |= {"max_steps": sgd, "learning_rate": SGD_RATE, "max_grad_norm": 0, "weight_decay": 0}
        observers = [*OBSERVERS.get(method, []), *([SGD] if sgd else []), *more]
        key = [method, layout.processes, sorted((name, str(value)) for name, value in words.items()), observers]
        digest = sha256(repr([key, whole and whole.parent.name]).encode()).hexdigest()[:12]

        def make(folder: Path) -> list[dict]:
            if whole:
                first = min(whole.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
                beside = [path for path in whole.iterdir() if path.name in ("reference", "pissa_start")]
                for path in (first, *beside):
                    shutil.copytree(path, folder / "out" / path.name)
            argv = as_words(words | {"output_dir": folder / "out"})
            (folder / "flags.json").write_text(json.dumps(argv))
            said = self.ranks(layout.processes, f"{RANKS}:train", method, argv, observers)
            assert not any(one["exit_code"] for one in said), said
            return said

        folder, said = kept(f"runs/{method}-{digest}", make)
        return Run(folder / "out", said)


def as_words(flags: dict) -> list[str]:
    """Return flags as a command line; a list is words that stay whole."""
    words = {name: value if isinstance(value, list) else str(value).split() for name, value in flags.items()}
    return [word for name, value in words.items() for word in (f"--{name}", *value)]
