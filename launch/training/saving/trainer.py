"""paddlenlp's Trainer with our checkpoints in place of its own, and a model that is saved tensor by tensor."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from paddlenlp.trainer import Trainer

from launch.checkpoint.state.manifest import checkpoint_name, read_manifest
from launch.checkpoint.state.restore import restore_tensors
from launch.checkpoint.state.tensors import held_tensors
from launch.processes.orphans import recorded_signals
from launch.training.output import put_later_aside
from launch.training.ranks import rank
from launch.training.saving.choose import fault_for_all
from launch.training.saving.continuation import Continuation, scaler_state
from launch.training.saving.requests import Requests, command_to_continue
from launch.training.saving.saver import Saver
from launch.training.saving.whole_model import save_whole_model, whole_config


class CheckpointTrainer(Trainer):
    """stopped_by: what ended the training before its last step, None where nothing did.

    best_checkpoint: name of the one with the best metric so far, None without --metric_for_best_model.
    weights_step: after which step the weights are, where that is not the last one: the best's, at the end.
    model_identity: what a checkpoint keeps of the model (launch/checkpoint/state/identity.py).
    """

    best_checkpoint: str | None = None
    weights_step: int | None = None
    model_identity: dict = {}

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        asynchronous = self.args.use_async_save or "async_save" in self.args.unified_checkpoint_config
        self.saver = Saver(self, asynchronous)
        self.requests = Requests(self.args.max_run_minutes, failed=lambda: self.saver.failed)
        self.add_callback(self.requests)
        self.continuation: Continuation | None = None

    @property
    def stopped_by(self) -> str | None:
        return self.requests.stopped_by

    def train(self, checkpoint: Path | None = None, damaged: Sequence[Path] = ()):
        """Train from step 0, or from where a checkpoint of ours ended. damaged: newer ones, which are put aside."""
        self._damaged = damaged
        if checkpoint is not None:
            self.saver.last = checkpoint
            self.continuation = Continuation(self, checkpoint, weights_alone=self.args.ignore_load_lr_and_optim)
            self.add_callback(self.continuation)
        if self.continuation and self.continuation.global_step >= self.args.max_steps:
            self._restore_alone()
        else:
            with recorded_signals() as self.requests.received:
                super().train()
                self.saver.settle()
        if self.args.load_best_model_at_end and self.best_checkpoint and not self.stopped_by:
            self._load_best(Path(self.args.output_dir) / self.best_checkpoint)

    def _load_best(self, checkpoint: Path) -> None:
        """Its weights, or those of the last step where it is gone or damaged: a run ends with a model, and says."""
        fault = fault_for_all(checkpoint)
        if fault is None:
            restore_tensors(checkpoint, held_tensors(self.model, None, self.args))
            self.weights_step = read_manifest(checkpoint).global_step
        if rank() == 0:
            step, metric = self.state.global_step, self.args.metric_for_best_model
            if fault:
                print(f"warning: no --load_best_model_at_end: {fault}. The model is that of step {step:,}.", flush=True)
            else:
                print(f"the model is that of step {self.weights_step:,}, the best by {metric}", flush=True)

    def _restore_alone(self) -> None:
        """The model of a run that has made all of its steps; upstream's loop fails without one."""
        self.create_optimizer_and_scheduler(self.args.max_steps)
        self.model_wrapped = self._wrap_model(self.model_wrapped)
        self._restore()
        self.state.global_step = self.continuation.global_step
        if rank() == 0:
            print(f"all {self.args.max_steps:,} steps are done: nothing is left to train", flush=True)

    def _restore(self) -> None:
        """Take what the checkpoint has, if there is one. Nothing of an earlier run is moved before that has gone
        well."""
        if self.continuation is not None:
            self.continuation.restore()
        self.saver.last = put_later_aside(self.saver.last, self._damaged, self.args)

    def tell_how_to_continue(self) -> None:
        """Where a run that was stopped can go on."""
        if rank() == 0:
            step, steps = self.state.global_step, self.args.max_steps
            print(f"stopped by {self.stopped_by} after step {step:,} of {steps:,}; {self.saver.last} is whole.")
            print(f"To continue: {command_to_continue()}", flush=True)

    # ---- a checkpoint

    def _save_checkpoint(self, model, metrics=None):
        self._note_best(metrics)
        self.saver.save()

    @contextmanager
    def watched_saving(self) -> Iterator[Callable[[], None]]:
        """Around waiting for what is written; gives what is to be called when some more is."""
        yield lambda: None

    def _note_best(self, metrics: dict | None) -> None:
        """As upstream does, by --metric_for_best_model."""
        name = self.args.metric_for_best_model
        if metrics is None or name is None:
            return
        value = metrics[name if name.startswith("eval_") else f"eval_{name}"]
        better = np.greater if self.args.greater_is_better else np.less
        if self.best_checkpoint is None or better(value, self.state.best_metric):
            self.state.best_metric = value
            self.best_checkpoint = checkpoint_name(self.state.global_step)

    def run_state(self) -> dict:
        """What a checkpoint says of the run, as JSON."""
        step = self.state.global_step
        return {
            "global_step": step,
            "consumed_samples": self.consumed_samples(step),
            "consumed_tokens": self.tokens_until(step),
            "ledger": self.ledger.at(step, self.stream.position(step), self.tokens_until(step)).to_json(),
            "scheduler": self.lr_scheduler.state_dict(),
            "scaler": scaler_state(self.scaler) if self.do_grad_scaling else None,
            "best_metric": self.state.best_metric,
            "best_checkpoint": self.best_checkpoint,
        }

    def data_identity(self) -> dict:
        """What the order of samples depends on, and how many of them a step takes."""
        return self.ledger.data[self.ledger.last.data] | {"global_batch": self.args.global_batch}

    def consumed_samples(self, step: int) -> int:
        """In all, before a step, 0 the first."""
        return self.ledger.samples + self.stream.position(step) - self.stream.start

    def whole_config(self):
        return whole_config(self.model)

    # ---- where upstream saves and resumes

    def save_model(self, output_dir: str | None = None, merge_tensor_parallel: bool = False):
        """Write whole weights that from_pretrained reads; called by all ranks together."""
        save_whole_model(self.model, self.tokenizer, output_dir or self.args.output_dir, self.args)

    def _load_optimizer_and_scheduler(self, checkpoint):
        """Called when the model and the optimizer have been wrapped; upstream never knows of our checkpoint."""
        self._restore()
