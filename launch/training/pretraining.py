"""A pretraining run: samples of equal length, read in an order that depends on seed and epoch alone."""

import numpy as np

from launch.adapters.adapter_files import ADAPTERS
from launch.checkpoint.ranks import total
from launch.families.arithmetic import ModelShape
from launch.reporting.callbacks import REPORTS
from launch.reporting.throughput import Throughput
from launch.training.device import device_peak
from launch.training.losses import IGNORED, summed_over_tokens
from launch.training.model import matmul_dtype
from launch.training.trainer import ResultTrainer, sample_stream
from launch.training.watches import watches


class Collator:
    """Samples of equal length to one batch: {"input_ids": int64 [batch, length], "labels": the same}. Tokens are copied
    once, from the memory-mapped files into the batch."""

    def __init__(self, sequence_length: int):
        self.sequence_length = sequence_length

    def __call__(self, samples: list) -> dict:
        shape = (len(samples), self.sequence_length)
        batch = {key: np.empty(shape, dtype=np.int64) for key in ("input_ids", "labels")}
        for row, sample in enumerate(samples):
            sample.write(batch["input_ids"][row], batch["labels"][row])
        return batch


class Padding:
    """A sample whose labels count for nothing."""

    def write(self, input_ids: np.ndarray, labels: np.ndarray) -> None:
        input_ids[:] = 0
        labels[:] = IGNORED


class PretrainTrainer(ResultTrainer):
    """sequence_length: of every sample."""

    def __init__(self, sequence_length: int, **kwargs):
        super().__init__(data_collator=Collator(sequence_length), **kwargs)
        self.sequence_length = sequence_length
        self.padding = Padding()

    @property
    def step_text(self) -> str:
        """What a step is, to tell."""
        global_batch = self.args.global_batch
        return f"{global_batch * self.sequence_length:,} tokens ({global_batch} samples of {self.sequence_length})"

    def tokens_until(self, step: int) -> int:
        return self.ledger.tokens + (self.stream.position(step) - self.stream.start) * self.sequence_length

    def batch_sums(self, model, inputs: dict) -> list[float]:
        counted = int((inputs["labels"] != IGNORED).sum())
        if self.args.pipeline_parallel_degree > 1:
            with summed_over_tokens(model):
                loss, _, _ = self.prediction_step(model, inputs, prediction_loss_only=True)
            return [float(loss) * self.args.gradient_accumulation_steps, counted]
        loss, _, _ = self.prediction_step(model, inputs, prediction_loss_only=True)
        return [float(loss) * counted if counted else 0.0, counted]


def build_trainer(model, tokenizer, data, ledger, model_args, data_args, training_args) -> PretrainTrainer:
    """The Trainer of a pretraining run with its reports and watches."""
    peak = device_peak(matmul_dtype(training_args))
    throughput = Throughput(
        shape=ModelShape.from_config(model.config.to_dict()),
        sequence_length=data_args.max_seq_length,
        peak_flops=total(peak.flops),
        note=peak.note,
        frozen=isinstance(model, ADAPTERS),
    )
    random_weights_loss = None if model_args.continue_training else throughput.shape.first_loss
    return PretrainTrainer(
        sequence_length=data_args.max_seq_length,
        throughput=throughput,
        ledger=ledger,
        stream=sample_stream(training_args, data.train, ledger, training_args.max_steps) if data.train else None,
        reports=[*(report() for report in REPORTS), *watches(training_args, random_weights_loss)],
        model=model,
        args=training_args,
        tokenizer=tokenizer,
        train_dataset=data.train,
        eval_dataset=data.valid,
    )
