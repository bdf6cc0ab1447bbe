"""Checkpoints of a run: when to save, what a checkpoint records, which one to continue, and what stops the run."""

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
from paddlenlp.trainer import TrainerCallback

from launch.checkpoint.continuation import Continuation
from launch.checkpoint.local_tensors import local_tensors, restore_tensors
from launch.checkpoint.manifest import checkpoint_name
from launch.checkpoint.output_directory import SAVE_NOW
from launch.checkpoint.ranks import rank, world_size
from launch.processes.command import COMMAND, DECIDE_THE_START, STOPPED_FILE
from launch.processes.orphans import recorded_signals
from launch.training.agreement import Agreement
from launch.training.resuming import Restorer, examine_together, put_later_aside, scaler_state
from launch.training.saver import Saver


class Checkpointer:
    """The part of the trainer that saves and continues.

    Attributes:
        best: Name of the checkpoint with the best metric so far, None without --metric_for_best_model.
        continuation: The checkpoint that the run continues.
        restorer: Of the checkpoint's state, None for a run from step 0.
    """

    def __init__(self, trainer, model_identity: dict):
        args = trainer.args
        self.trainer, self.model_identity = trainer, model_identity
        self.saver = Saver(self, args.use_async_save or "async_save" in args.unified_checkpoint_config)
        self.requests = Requests(args.max_run_minutes, failed=lambda: self.saver.failed)
        trainer.add_callback(self.requests)
        self.continuation = Continuation()
        self.restorer: Restorer | None = None
        self.best: str | None = None
        self._loaded_step: int | None = None  # of the best checkpoint, when it is loaded at the end

    @property
    def stopped_by(self) -> str | None:
        """The reason why training ended before its last step, None where it did not."""
        return self.requests.stopped_by

    @property
    def all_steps_done(self) -> bool:
        """Whether the run has made all of its steps."""
        return bool(self.restorer) and self.restorer.global_step >= self.trainer.args.max_steps

    @property
    def weights_step(self) -> int:
        """The step after which the weights are."""
        return self.trainer.state.global_step if self._loaded_step is None else self._loaded_step

    # ---- from the beginning of a training to its end

    def begin(self, continuation: Continuation) -> None:
        """Take the checkpoint to continue, and read the state of its run."""
        self.continuation, checkpoint, manifest = continuation, continuation.checkpoint, continuation.manifest
        if checkpoint is None or manifest is None:
            return
        self.saver.last = checkpoint
        weights_alone = self.trainer.args.ignore_load_lr_and_optim
        self.restorer = Restorer(self.trainer, checkpoint, manifest, weights_alone)
        if not weights_alone and self.restorer.measures_the_same:
            self.best = self.restorer.run["best_checkpoint"]
        self.trainer.add_callback(self.restorer)

    @contextmanager
    def signals_received(self) -> Iterator[None]:
        """Let signals that arrive within the block stop the run at the end of a step."""
        with recorded_signals() as self.requests.received:
            yield

    def restore(self) -> None:
        """Load the checkpoint, if there is one. Nothing of an earlier run is moved until it has been loaded."""
        if self.restorer is not None:
            self.restorer.restore()
        self.saver.last = put_later_aside(self.continuation, self.trainer.args)

    def save(self, metrics: dict | None) -> None:
        """Save a checkpoint of the step just done.

        Args:
            metrics: Of its evaluation, None without one.
        """
        self._note_best(metrics)
        self.saver.save()

    def load_best(self) -> None:
        """Load the weights of the best checkpoint, with --load_best_model_at_end.

        The last step's weights stay where it is missing or damaged. Either way the run ends with a model, and prints
        which.
        """
        trainer, args = self.trainer, self.trainer.args
        if not args.load_best_model_at_end or not self.best or self.stopped_by:
            return
        checkpoint = Path(args.output_dir) / self.best
        manifest, fault = examine_together(checkpoint)
        if manifest:
            restore_tensors(checkpoint, manifest, local_tensors(trainer.model, None, args))
            self._loaded_step = manifest.global_step
        if rank() != 0:
            return
        if fault:
            step = trainer.state.global_step
            print(f"warning: no --load_best_model_at_end: {fault}. The model is that of step {step:,}.", flush=True)
        else:
            print(
                f"the model is that of step {self._loaded_step:,}, the best by {args.metric_for_best_model}", flush=True
            )

    def print_how_to_continue(self) -> None:
        """Print where a stopped run is, and the command that continues it. A file notifies the recipe."""
        if path := os.environ.get(STOPPED_FILE):
            Path(path).touch()
        if rank() == 0:
            step, steps = self.trainer.state.global_step, self.trainer.args.max_steps
            kept = f"{self.saver.last} is whole" if self.saver.last else "no step was made"
            print(f"stopped by {self.stopped_by} after step {step:,} of {steps:,}; {kept}.")
            print(f"To continue: {command_to_continue()}", flush=True)

    # ---- what a checkpoint says

    def run_state(self) -> dict:
        """Return the run's state as a JSON-serializable dict."""
        trainer, data = self.trainer, self.trainer.data
        step = trainer.state.global_step
        return {
            "global_step": step,
            "consumed_samples": data.consumed_samples(step),
            "consumed_tokens": data.tokens_until(step),
            "ledger": data.ledger_at(step).to_json(),
            "updates": trainer.lr_scheduler.last_epoch,  # those that a loss scale skipped are none
            "scaler": scaler_state(trainer.scaler) if trainer.do_grad_scaling else None,
            # It clips the next step.
            "grad_norm": trainer.grad_norm.value if trainer.args.update_in_backward else None,
            "best_metric": trainer.state.best_metric,
            "best_checkpoint": self.best,
            "measured": trainer.measured,
            "loss": trainer.loss.state(step),
        }

    def data_identity(self) -> dict:
        """Return what the order of samples depends on, and the number of samples of a step."""
        return self.trainer.data.identity | {"global_batch": self.trainer.args.global_batch}

    @contextmanager
    def watched_saving(self) -> Iterator[Callable[[], None]]:
        """Watch a wait for files for hangs; gives a function to call whenever more is written."""
        with self.trainer.watches.hang_timer.beside_steps():
            yield self.trainer.watches.hang_timer.moved

    def _note_best(self, metrics: dict | None) -> None:
        """Note the best checkpoint as upstream does, by --metric_for_best_model."""
        args, state = self.trainer.args, self.trainer.state
        name = args.metric_for_best_model
        if metrics is None or name is None:
            return
        value = metrics[name if name.startswith("eval_") else f"eval_{name}"]
        better = np.greater if args.greater_is_better else np.less
        if self.best is None or better(value, state.best_metric):
            state.best_metric = value
            self.best = checkpoint_name(state.global_step)


# ---- what saves or ends a run at the end of a step: a signal, the time limit, the file save-now; the same on all ranks

# What may be requested. Of several reasons to stop the first is given.
REQUESTS = ("SIGINT", "SIGTERM", "SIGHUP", "time", "failed save", "save")


class StoppedBefore(Exception):
    """Ends a run that has not begun to train."""


class Requests(TrainerCallback):
    """The requests to save or stop.

    Attributes:
        received: Numbers of the signals that this process got, filled in elsewhere.
        failed: Whether a save in the background went wrong in this rank.
        stopped_by: The reason why the run has ended before its last step, None otherwise.
    """

    def __init__(self, max_run_minutes: float, failed=lambda: False):
        self.received: list[int] = []
        self.failed = failed
        self.max_run_minutes = max_run_minutes
        self.stopped_by: str | None = None
        self._agreement: Agreement | None = None

    def on_step_end(self, args, state, control, **kwargs):
        """Save or stop where a rank requests it."""
        requested = self._requested(args)
        if "save" in requested and args.process_index == 0:
            (Path(args.output_dir) / SAVE_NOW).unlink(missing_ok=True)
        if requested:
            control.should_save = True
        if state.global_step < args.max_steps:
            self._note_reason(requested)
            control.should_training_stop |= self.stopped_by is not None

    def stop_before_training(self, args) -> None:
        """End the run where it is requested, during work before its first step. Called by all ranks together."""
        self._note_reason(self._requested(args))
        if self.stopped_by:
            raise StoppedBefore

    def _note_reason(self, requested: list[str]) -> None:
        reasons = [reason for reason in requested if reason != "save"]
        if reasons:
            self.stopped_by = f"--max_run_minutes {self.max_run_minutes:g}" if "time" in reasons else reasons[0]

    def _requested(self, args) -> list[str]:
        """Return the requests of any rank, on all ranks, in the order of REQUESTS. All ranks call it together."""
        requested = self._requested_here(args)
        if world_size() > 1:
            self._agreement = self._agreement or Agreement()
            requested = self._agreement(requested)
        return [request for request in REQUESTS if request in requested]

    def _requested_here(self, args) -> set[str]:
        requested = {signal.Signals(number).name for number in self.received}
        if self.failed():
            requested.add("failed save")
        if args.process_index == 0:
            minutes = (time.time() - psutil.Process().create_time()) / 60
            if self.max_run_minutes and minutes >= self.max_run_minutes:
                requested.add("time")
            if (Path(args.output_dir) / SAVE_NOW).exists():
                requested.add("save")
        return requested


def command_to_continue() -> str:
    """Return the command that started this run, without flags that would start it again or elsewhere."""
    words = shlex.split(os.environ.get(COMMAND, "")) or [sys.executable, *sys.argv]
    kept, skips = [], False
    for word in words:
        if word.startswith("--"):
            skips = word.partition("=")[0] in DECIDE_THE_START
        if not skips:
            kept.append(word)
    return shlex.join(kept)
