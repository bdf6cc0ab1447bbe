"""paddlenlp's Trainer with our order of samples, our numbers in the log and an evaluation that weighs tokens."""

import contextlib
import math

import numpy as np
import paddle
from paddlenlp.trainer.trainer_callback import PrinterCallback, ProgressCallback
from paddlenlp.transformers import CosineAnnealingWithWarmupDecay, LinearAnnealingWithWarmupDecay

from launch.checkpoint.state.ledger import Ledger
from launch.offload.group_sharded import Offload
from launch.processes.orphans import be_data_worker
from launch.reporting.throughput import Throughput, TimedLoader, TrainingClock
from launch.training.checks.weights import require_numbers
from launch.training.data.sampler import PaddedShard, SampleStream
from launch.training.device import peak_memory_bytes
from launch.training.loss.grad_norm import GradNorm, clip_by_global_norm
from launch.training.loss_scale import ScaleRule, SkippedSteps, follow
from launch.training.saving.trainer import CheckpointTrainer
from launch.watch import memory
from launch.watch.callbacks import HangReport, PhaseReport
from launch.watch.hang import HangTimer
from launch.watch.memory import Phase

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
        self.phase = Phase(memory.FORWARD)
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
        with memory.out_of_memory_explained(self.phase, self.args):
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
        self.phase.name = memory.FORWARD
        loss = self.loss_of(model, inputs, return_outputs)
        self.phase.name = memory.BACKWARD
        return loss

    def loss_of(self, model, inputs: dict, return_outputs: bool):
        """The loss of a batch, with the model's outputs where they are asked for."""
        return super().compute_loss(model, inputs, return_outputs)

    def training_pipeline_step(self, model, inputs):
        self._step_learning_rate = self.optimizer.get_lr()
        self.phase.name = memory.PIPELINE
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
        with self.clock.paused(), self.hang_timer.beside_steps(), self.phase.during(memory.CHECKPOINT):
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
        with self.clock.paused(), self.phase.during(memory.EVALUATION):
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
        with memory.out_of_memory_explained(self.phase, self.args):
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
