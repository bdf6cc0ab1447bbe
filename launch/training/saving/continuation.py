"""Continue where a checkpoint ended: weights, optimizer, schedule, loss scale, random numbers, position."""

import json
from pathlib import Path

import numpy as np
from paddlenlp.trainer import TrainerCallback

from launch.checkpoint.state import random_state
from launch.checkpoint.state.manifest import RUN, rank_file, read_manifest
from launch.checkpoint.state.restore import restore_tensors
from launch.checkpoint.state.tensors import held_tensors
from launch.reporting.records import plain, topology
from launch.training.ranks import rank

RANDOM_NUMBERS = "all continues but random numbers (dropout), which differ from those of an uninterrupted run"
# Arguments that may be others from here on: the run goes on with them, and says so.
TOLD = (
    "max_steps", "learning_rate", "min_learning_rate", "lr_scheduler_type", "warmup_steps", "warmup_ratio",
    "decay_steps", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm",
)  # fmt: skip


def changed_arguments(before: dict, now: dict) -> list[str]:
    """Lines about the arguments of TOLD that differ from those with which a checkpoint was made."""
    now = json.loads(json.dumps(now))  # names for members of an Enum, as a manifest has them
    return [f"--{key} is {now[key]}, was {before[key]}" for key in TOLD if before.get(key, now[key]) != now[key]]


class Continuation(TrainerCallback):
    """A checkpoint that a trainer continues from. weights_alone: the run starts at step 0 with its weights.

    Upstream's own resume is not used: it reads consumed data again, and takes the random numbers when there are
    batches to skip, or at every epoch.
    """

    def __init__(self, trainer, checkpoint: Path, weights_alone: bool = False):
        self.trainer = trainer
        self.checkpoint = checkpoint
        self.weights_alone = weights_alone
        self.run = json.loads((checkpoint / RUN).read_text(encoding="utf-8"))
        self._random_state = None
        if not weights_alone:
            trainer.best_checkpoint = self.run["best_checkpoint"]
            if read_manifest(checkpoint).topology == layout_of(trainer.args):
                own = checkpoint / rank_file(rank())
                self._random_state = json.loads(own.read_text(encoding="utf-8"))["random_state"]
            elif rank() == 0:
                print(f"resume: {checkpoint.name} is of another layout: {RANDOM_NUMBERS}", flush=True)
            if rank() == 0:
                for line in changed_arguments(read_manifest(checkpoint).arguments, plain(vars(trainer.args))):
                    print(f"resume: {line}", flush=True)

    @property
    def global_step(self) -> int:
        """Where the run goes on."""
        return 0 if self.weights_alone else self.run["global_step"]

    def restore(self) -> None:
        """Weights, optimizer, schedule and loss scale, once the trainer has wrapped them for its layout."""
        trainer = self.trainer
        optimizer = None if self.weights_alone else trainer.optimizer
        restore_tensors(self.checkpoint, held_tensors(trainer.model, optimizer, trainer.args))
        if self.weights_alone:
            return
        trainer.lr_scheduler.set_state_dict(self.run["scheduler"])
        if trainer.do_grad_scaling and self.run["scaler"]:
            scaler = self.run["scaler"]
            trainer.scaler.load_state_dict(scaler | {"scale": np.array(scaler["scale"], dtype=np.float32)})

    # ---- as training begins, in this order

    def on_train_begin(self, args, state, control, **kwargs):
        state.global_step = self.global_step
        if not self.weights_alone:
            state.best_metric = self.run["best_metric"]

    def on_step_begin(self, args, state, control, **kwargs):
        """The last moment before a random number is used: loaders and wrappers have drawn theirs. Once."""
        if self._random_state is not None:
            random_state.restore(self._random_state)
            self._random_state = None


def layout_of(training_args) -> dict:
    """What decides which rank has what, and draws which random numbers."""
    return topology(training_args) | {"sharding": " ".join(map(str, training_args.sharding))}


def scaler_state(scaler) -> dict:
    """A loss scaler's state as JSON."""
    state = scaler.state_dict()
    return state | {"scale": np.asarray(state["scale"]).tolist()} if state else {}
