"""paddlenlp's Trainer with our order of samples, our numbers in the log and an evaluation that weighs tokens."""

import math

import numpy as np
import paddle
from paddlenlp.trainer import Trainer
from paddlenlp.trainer.trainer_callback import PrinterCallback, ProgressCallback
from paddlenlp.transformers import CosineAnnealingWithWarmupDecay, LinearAnnealingWithWarmupDecay

from launch.reporting.throughput import Throughput, TrainingClock
from launch.training.device import peak_memory_bytes
from launch.training.grad_norm import GradNorm, clip_by_global_norm
from launch.training.pipeline_loss import IGNORED, summed_over_tokens
from launch.training.sampler import PaddedShard, SampleStream

SCHEDULES_WITH_FLOOR = {"cosine": CosineAnnealingWithWarmupDecay, "linear": LinearAnnealingWithWarmupDecay}


def collate(samples: list[dict]) -> dict:
    """Samples of equal length to one batch: {"input_ids": int64 [batch, length], "labels": the same}."""
    return {key: np.stack([sample[key] for sample in samples]) for key in samples[0]}


class PaddedDataset:
    """A dataset that answers for the padding positions of PaddedShard with labels that count for nothing."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int | None) -> dict:
        if index is not None:
            return self.dataset[index]
        sample = self.dataset[0]
        return {"input_ids": sample["input_ids"], "labels": np.full_like(sample["labels"], IGNORED)}


class PretrainTrainer(Trainer):
    """Pretraining on samples of equal length.

    throughput: what a step is worth, for the log. reports: callbacks that receive each record in `on_log`.
    """

    def __init__(self, throughput: Throughput, reports: list, **kwargs):
        self.grad_norm = GradNorm()
        self.grad_norm.record()
        super().__init__(data_collator=collate, callbacks=reports, **kwargs)
        self.throughput = throughput
        self.clock = TrainingClock()
        self.first_record, self.last_record, self.last_evaluation = {}, {}, None
        for upstream_printer in (PrinterCallback, ProgressCallback):
            self.remove_callback(upstream_printer)

    def print_config(self, args=None, key=""):
        """Upstream prints every argument as a log line; run_summary.json has them."""

    # ---- order of samples

    def _get_train_sampler(self) -> SampleStream:
        args = self.args
        return SampleStream(
            samples=len(self.train_dataset),
            seed=args.seed,
            micro_batch=args.per_device_train_batch_size,
            accumulation=args.gradient_accumulation_steps,
            data_rank=args.dataset_rank,
            data_ranks=args.dataset_world_size,
            steps=args.max_steps,
        )

    # ---- optimizer and schedule

    def create_optimizer(self, lr_scheduler=None):
        optimizer = super().create_optimizer(lr_scheduler)
        optimizer._grad_clip = clip_by_global_norm(self.args.max_grad_norm)
        return optimizer

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
        return super().train(*args, **kwargs)

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

    def training_pipeline_step(self, model, inputs):
        self._step_learning_rate = self.optimizer.get_lr()
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
        speed = self.throughput.measure(steps, self.clock.lap())
        consumed_samples = step * args.global_batch
        return {
            "global_step": step,
            "progress": step / args.max_steps,
            "epoch": consumed_samples / len(self.train_dataset),
            "loss": self._interval_loss / steps,
            "learning_rate": self._step_learning_rate,
            "grad_norm": self.grad_norm.value,
            **speed,
            "peak_memory_bytes": peak_memory_bytes(),
            "eta_seconds": speed["step_seconds"] * (args.max_steps - step),
            "consumed_samples": consumed_samples,
            "consumed_tokens": step * self.throughput.tokens_per_step,
        }

    def _save_checkpoint(self, model, metrics=None):
        with self.clock.paused():
            super()._save_checkpoint(model, metrics=metrics)

    # ---- evaluation

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict:
        """Mean loss over tokens, and its perplexity: the same number for every layout and micro batch.

        Every token of the dataset counts once, those of the last partial batch included.
        """
        with self.clock.paused():
            dataset = eval_dataset if eval_dataset is not None else self.eval_dataset
            loss, tokens = self._token_loss(dataset)
        metrics = {
            f"{metric_key_prefix}_loss": loss,
            f"{metric_key_prefix}_perplexity": math.exp(min(loss, 700.0)),  # beyond e^709 a float is infinite
            f"{metric_key_prefix}_tokens": tokens,
            "global_step": self.state.global_step,
        }
        self.last_evaluation = metrics
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def final_evaluation(self) -> dict:
        """The evaluation of the weights as they are now: the last one, where no step was made since."""
        if self.last_evaluation and self.last_evaluation["global_step"] == self.state.global_step:
            return self.last_evaluation
        return self.evaluate()

    def _token_loss(self, dataset) -> tuple[float, int]:
        """(mean loss in nats, number of tokens) over all data ranks."""
        args = self.args
        shard = PaddedShard(len(dataset), args.per_device_eval_batch_size, args.dataset_rank, args.dataset_world_size)
        loader = paddle.io.DataLoader(PaddedDataset(dataset), batch_sampler=shard, collate_fn=collate)
        model = self.model_wrapped if args.pipeline_parallel_degree > 1 else self.model
        model.eval()
        loss_sum, tokens = 0.0, 0
        for inputs in loader:
            counted = int((inputs["labels"] != IGNORED).sum())
            loss_sum += self._loss_sum(model, inputs, counted)
            tokens += counted
        model.train()
        totals = paddle.to_tensor([loss_sum, float(tokens)], dtype="float64")
        if args.world_size > 1:
            paddle.distributed.all_reduce(totals)
        # Ranks that share a data rank (tensor and pipeline parallel) have counted the same tokens.
        copies = args.world_size // args.dataset_world_size if args.world_size > 1 else 1
        return float(totals[0] / totals[1]), int(totals[1]) // copies

    def _loss_sum(self, model, inputs: dict, counted: int) -> float:
        """The loss of a batch, summed over its `counted` tokens. All ranks of a model take part."""
        if self.args.pipeline_parallel_degree > 1:
            with summed_over_tokens(model):
                loss, _, _ = self.prediction_step(model, inputs, prediction_loss_only=True)
            return float(loss) * self.args.gradient_accumulation_steps
        loss, _, _ = self.prediction_step(model, inputs, prediction_loss_only=True)
        return float(loss) * counted if counted else 0.0
