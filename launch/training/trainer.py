"""paddlenlp's Trainer with our order of samples, our numbers in the log and an evaluation that weighs tokens."""

import contextlib
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import paddle
from paddlenlp.trainer import Trainer
from paddlenlp.trainer.trainer_callback import PrinterCallback, ProgressCallback
from paddlenlp.transformers import CosineAnnealingWithWarmupDecay, LinearAnnealingWithWarmupDecay

from launch.adapters.adapter_files import ADAPTERS, save_adapter
from launch.checkpoint.ranks import first_on_rank_zero, rank
from launch.checkpoint.state.data_ledger import Ledger
from launch.checkpoint.state.manifest import PARTIAL_MODEL, checkpoint_name, read_manifest
from launch.checkpoint.state.tensors import held_tensors, restore_tensors
from launch.checkpoint.state.write import put_in_place
from launch.offload.group_sharded import Offload
from launch.processes.orphans import be_data_worker, recorded_signals
from launch.reporting.throughput import Throughput, TimedLoader, TrainingClock
from launch.training.batches import PaddedShard, SampleStream
from launch.training.checkpointer import Saver
from launch.training.device import peak_memory_bytes
from launch.training.optimizer import GradNorm, ScaleRule, SkippedSteps, clip_by_global_norm, follow
from launch.training.requests import Requests, command_to_continue
from launch.training.result import ReadBack, save_whole_model, whole_config
from launch.training.resuming import Continuation, fault_for_all, put_later_aside, scaler_state
from launch.training.watches import HangReport, PhaseReport, require_numbers
from launch.watch import memory_watch
from launch.watch.hang import HangTimer
from launch.watch.memory_watch import Phase


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


SCHEDULES_WITH_FLOOR = {"cosine": CosineAnnealingWithWarmupDecay, "linear": LinearAnnealingWithWarmupDecay}


class PaddedDataset:
    """A dataset that answers for padding positions (None) with `padding`, whose labels count for nothing."""

    def __init__(self, dataset, padding: dict):
        self.dataset = dataset
        self.padding = padding

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int | None) -> dict:
        return self.padding if index is None else self.dataset[index]


class RunTrainer(CheckpointTrainer):
    """What pretraining and fine-tuning share.

    throughput: what the devices could do, for the log. stream: the order of training, ledger: what of it was consumed
    before, both None where there is none.
    reports: callbacks that receive each record in `on_log`. Subclasses know their samples: `padding`, `tokens_until`,
    and the sums of an evaluated batch.
    """

    padding: dict  # a sample whose labels count for nothing
    epochs_asked: float = 1  # how often the user wants to read each sample, at most

    def __init__(
        self, throughput: Throughput, stream: SampleStream | None, ledger: Ledger | None, reports: list, **kwargs
    ):
        self.grad_norm = GradNorm()
        self.grad_norm.record()
        self.hang_timer = HangTimer(kwargs["args"].hang_factor, kwargs["args"].hang_seconds)
        self.phase = Phase(memory_watch.FORWARD)
        self.offload = Offload() if kwargs["args"].host_offload else None
        self.skipped = SkippedSteps() if kwargs["args"].fp16 else None
        skips = [self.skipped] if self.skipped else []
        super().__init__(callbacks=[*skips, *reports, HangReport(self.hang_timer), PhaseReport(self.phase)], **kwargs)
        self.throughput = throughput
        self.stream = stream
        self.ledger = ledger
        self.clock = TrainingClock()
        self.first_record, self.last_record, self.last_evaluation = {}, {}, None
        for upstream_printer in (PrinterCallback, ProgressCallback):
            self.remove_callback(upstream_printer)

    def print_config(self, args=None, key=""):
        """Upstream prints every argument as a log line; run_summary.json has them."""

    # ---- samples

    def get_train_dataloader(self):
        loader = paddle.io.DataLoader(
            PaddedDataset(self.train_dataset, self.padding),
            batch_sampler=self.stream,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            worker_init_fn=be_data_worker,
        )
        return TimedLoader(loader, self.clock)

    def tokens_until(self, step: int) -> int:
        """Tokens that all data ranks together have read before a step, 0 the first."""
        raise NotImplementedError

    # ---- optimizer and schedule

    def _wrap_amp_model(self, args, model):
        super()._wrap_amp_model(args, model)
        if self.do_grad_scaling:
            follow(self.scaler, ScaleRule(args.loss_scale_window, args.loss_scale_hysteresis, args.min_loss_scale))

    def create_optimizer(self, lr_scheduler=None):
        optimizer = super().create_optimizer(lr_scheduler)
        optimizer._grad_clip = clip_by_global_norm(self.args.max_grad_norm)
        if self.offload:
            self.offload.prepare(optimizer)
        return optimizer

    def _wrap_model(self, model, training=True):
        if not (self.offload and training):
            return super()._wrap_model(model, training)
        with self.offload.sharding():
            wrapped = super()._wrap_model(model, training)
        self.offload.finish(self.scaler if self.do_grad_scaling else None)
        return wrapped

    def create_scheduler(self, num_training_steps: int):
        """Cosine and linear schedules end at --min_learning_rate after --decay_steps; others are upstream's."""
        args = self.args
        schedule = SCHEDULES_WITH_FLOOR.get(args.lr_scheduler_type.value)
        if schedule is None:
            return super().create_scheduler(num_training_steps)
        warmup_steps = args.warmup_steps if args.warmup_steps > 0 else int(args.warmup_ratio * num_training_steps)
        self.lr_scheduler = schedule(
            max_lr=args.learning_rate,
            min_lr=args.min_learning_rate,
            warmup_step=warmup_steps,
            decay_step=args.decay_steps if args.decay_steps > 0 else num_training_steps,
            last_epoch=0,
        )
        return self.lr_scheduler

    # ---- what a logging step reports

    def train(self, *args, **kwargs):
        self.clock.lap()
        with memory_watch.out_of_memory_explained(self.phase, self.args):
            try:
                return super().train(*args, **kwargs)
            finally:
                self.hang_timer.stop()

    def _get_item_from_loss(self, loss) -> float:
        """The sum of the interval's losses, kept as it is: upstream rounds what it logs to 8 digits."""
        self._interval_loss = super()._get_item_from_loss(loss)
        self._interval_steps = self.state.global_step - self._globalstep_last_logged
        return self._interval_loss

    def _get_learning_rate(self) -> float:
        """The rate of the step just done; upstream logs that of the next."""
        return self._step_learning_rate

    def training_step(self, model, inputs):
        self._step_learning_rate = self.optimizer.get_lr()
        return super().training_step(model, inputs)

    def compute_loss(self, model, inputs, return_outputs: bool = False):
        if not model.training:
            return self.loss_of(model, inputs, return_outputs)
        self.phase.name = memory_watch.FORWARD
        loss = self.loss_of(model, inputs, return_outputs)
        self.phase.name = memory_watch.BACKWARD
        return loss

    def loss_of(self, model, inputs: dict, return_outputs: bool):
        """The loss of a batch, with the model's outputs where they are asked for."""
        return super().compute_loss(model, inputs, return_outputs)

    def training_pipeline_step(self, model, inputs):
        self._step_learning_rate = self.optimizer.get_lr()
        self.phase.name = memory_watch.PIPELINE
        return super().training_pipeline_step(model, inputs)

    def log(self, logs: dict, **kwargs) -> None:
        """Give the reports our numbers of a training interval, and evaluation metrics as they are.

        Upstream's summary at the end of training (`train_loss`, `train_runtime`) is dropped: run_summary.json has it.
        """
        if "train_loss" in logs:
            return
        if "loss" in logs:
            logs = self._interval_record()
            self.first_record = self.first_record or logs
            self.last_record = logs
        self.control = self.callback_handler.on_log(self.args, self.state, self.control, logs)

    def _interval_record(self) -> dict:
        args, step, steps = self.args, self.state.global_step, self._interval_steps
        consumed_samples, consumed_tokens = self.consumed_samples(step), self.tokens_until(step)
        seconds = self.clock.lap()
        speed = self.throughput.measure(consumed_tokens - self.tokens_until(step - steps), steps, seconds)
        return {
            "global_step": step,
            "progress": step / args.max_steps,
            "epoch": self.stream.position(step) / len(self.train_dataset),
            "loss": self._interval_loss / steps,
            "learning_rate": self._step_learning_rate,
            "grad_norm": self.grad_norm.value,
            **(self.skipped.record() if self.skipped else {}),
            **speed,
            "data_share": self.clock.data_seconds / seconds,
            "peak_memory_bytes": peak_memory_bytes(),
            "eta_seconds": speed["step_seconds"] * (args.max_steps - step),
            "consumed_samples": consumed_samples,
            "consumed_tokens": consumed_tokens,
        }

    def _check_loss_valid(self, loss):
        """Upstream ends a rank whose own loss is no number; the loss watch ends all, by the mean."""

    def _maybe_log_save_evaluate(self, *args, **kwargs):
        """A step that is to be saved is logged first: what is wrong with its loss shows before the checkpoint is."""
        self.control.should_log |= self.control.should_save
        super()._maybe_log_save_evaluate(*args, **kwargs)

    def _save_checkpoint(self, model, metrics=None):
        with self.clock.paused(), self.hang_timer.beside_steps(), self.phase.during(memory_watch.CHECKPOINT):
            super()._save_checkpoint(model, metrics=metrics)

    @contextlib.contextmanager
    def watched_saving(self):
        with self.hang_timer.beside_steps():
            yield self.hang_timer.moved

    # ---- evaluation

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict:
        """Mean loss over tokens, and its perplexity: the same number for every layout and micro batch.

        Every token of the dataset counts once, those of the last partial batch included.
        """
        with self.clock.paused(), self.phase.during(memory_watch.EVALUATION):
            require_numbers(self.model)
            sums = self._evaluation_sums(eval_dataset if eval_dataset is not None else self.eval_dataset)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in self.metrics_of(sums).items()}
        metrics["global_step"] = self._weights_step
        self.last_evaluation = metrics
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def final_evaluation(self) -> dict:
        """The evaluation of the weights as they are now: the last one, where no step was made since."""
        if self.last_evaluation and self.last_evaluation["global_step"] == self._weights_step:
            return self.last_evaluation
        with memory_watch.out_of_memory_explained(self.phase, self.args):
            return self.evaluate()

    @property
    def _weights_step(self) -> int:
        return self.state.global_step if self.weights_step is None else self.weights_step

    def metrics_of(self, sums: list[float]) -> dict:
        """What an evaluation reports, from the sums of all its batches (see batch_sums)."""
        loss_sum, tokens = sums[:2]
        loss = loss_sum / tokens
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),  # beyond e^709 a float is infinite
            "tokens": int(tokens),
        }

    def _evaluation_sums(self, dataset) -> list[float]:
        """batch_sums of all batches of all data ranks together."""
        args = self.args
        shard = PaddedShard(len(dataset), args.per_device_eval_batch_size, args.dataset_rank, args.dataset_world_size)
        padded = PaddedDataset(dataset, self.padding)
        loader = paddle.io.DataLoader(padded, batch_sampler=shard, collate_fn=self.data_collator)
        model = self.model_wrapped if args.pipeline_parallel_degree > 1 else self.model
        model.eval()
        sums = []
        for inputs in loader:
            sums.append(self.batch_sums(model, inputs))
            self.hang_timer.moved()
        totals = paddle.to_tensor(np.sum(sums, axis=0), "float64")
        model.train()
        if args.world_size > 1:
            paddle.distributed.all_reduce(totals)
        # Ranks that share a data rank (tensor and pipeline parallel) have counted the same tokens.
        copies = args.world_size // args.dataset_world_size if args.world_size > 1 else 1
        return [float(total) / copies for total in totals]

    def batch_sums(self, model, inputs: dict) -> list[float]:
        """(loss in nats, tokens, ...) of a batch, summed over its counted tokens. All ranks of a model take part."""
        raise NotImplementedError


def sample_stream(args, dataset, ledger: Ledger, steps: int, end: int | None = None) -> SampleStream:
    """The order of training from where the ledger ends, for this rank's place in the layout; a blend has an order of
    its own. end: see SampleStream."""
    return SampleStream(
        samples=len(dataset),
        epoch_order=getattr(dataset, "epoch_order", None),
        seed=args.seed,
        micro_batch=args.per_device_train_batch_size,
        accumulation=args.gradient_accumulation_steps,
        data_rank=args.dataset_rank,
        data_ranks=args.dataset_world_size,
        steps=steps,
        end=end,
        first_step=ledger.last.last_step,
        start=ledger.last.stop,
    )


TRIED = 2  # samples that a saved adapter is tried on


class ResultTrainer(RunTrainer):
    """read_back: None where the whole model is trained. made_a_step: with a learning rate above 0."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.read_back = ReadBack(self.model, self.args) if isinstance(self.model, ADAPTERS) else None
        self.made_a_step = False

    def training_step(self, model, inputs):
        self.made_a_step |= self.optimizer.get_lr() > 0
        return super().training_step(model, inputs)

    def save_result(self, directory: Path | None = None) -> None:
        """Write what was trained, for use, and its tokenizer where there is one: the adapter alone or the whole model.

        directory: default the run's own, at its end, where the files appear together when all are whole.
        Raises UserError on all ranks where they cannot be written, or an adapter does not read back as trained.
        """
        if directory is not None:
            return self._write_result(directory, updated=False)
        output = Path(self.args.output_dir)
        partial = output / PARTIAL_MODEL
        first_on_rank_zero(lambda: _empty(partial) if rank() == 0 else None)
        read_back = self._write_result(partial, updated=self.made_a_step)
        first_on_rank_zero(lambda: put_in_place(partial, output) if rank() == 0 else None)
        if rank() == 0 and read_back:
            print(read_back, flush=True)

    def _write_result(self, directory: Path, updated: bool) -> str | None:
        """A line about an adapter that was read back. updated: whether training must have changed it."""
        if not self.read_back:
            self.save_model(str(directory))
            return None
        save_adapter(self.model, directory, self.args)
        line = self._read_back_line(*self.read_back.check(directory, self.outcome, updated))
        first_on_rank_zero(lambda: self._save_tokenizer(directory) if rank() == 0 else None)
        return line

    def _save_tokenizer(self, directory: Path) -> None:
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(str(directory))

    def _read_back_line(self, changed: int, tensors: int, difference: float) -> str:
        what = "loss" if self.args.pipeline_parallel_degree > 1 else "logits"
        return (
            f"adapter read back from {self.args.output_dir}: {tensors} tensors as trained, {changed} of them not as at "
            f"the beginning; largest difference of the {what} of {self._tried} training samples {difference:.2g}"
        )

    @property
    def _tried(self) -> int:
        """A pipeline takes whole batches only."""
        args = self.args
        if args.pipeline_parallel_degree > 1:
            return args.per_device_eval_batch_size
        return min(TRIED, args.per_device_train_batch_size)

    def outcome(self) -> np.ndarray:
        """The logits of the first samples of training, of this rank's part of the vocabulary; a pipeline has their
        loss instead."""
        first = range(self._tried)
        padded = PaddedDataset(self.train_dataset, self.padding)
        batch = self.data_collator([padded[i if i < len(self.train_dataset) else None] for i in first])
        inputs = {key: paddle.to_tensor(array) for key, array in batch.items()}
        pipeline = self.args.pipeline_parallel_degree > 1
        model = self.model_wrapped if pipeline else self.model
        model.eval()
        if pipeline:
            outcome, _, _ = self.prediction_step(model, inputs, prediction_loss_only=True)
        else:
            with paddle.no_grad(), self.autocast_smart_context_manager():
                _, (_, outcome) = self.loss_of(self.model, inputs, return_outputs=True)
        model.train()
        return outcome.astype("float32").numpy()


def _empty(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
