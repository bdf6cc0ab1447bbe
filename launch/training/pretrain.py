"""Pretraining: samples of equal length from corpora of token ids, and the model's own loss."""

import numpy as np

from launch.checkpoint.continuation import Continuation
from launch.methods.pretraining import PRETRAINING
from launch.training.data import TrainingData, open_data
from launch.training.losses import IGNORED, Loss, summed_over_tokens
from launch.training.resuming import open_ledger
from launch.training.run import Training


class Pretraining(Training):
    """--max_seq_length tokens a sample; no tokenizer is needed."""

    method = PRETRAINING

    def open_data(self, tokenizer, config, continuation: Continuation, row_ends: bool) -> "PretrainingData":
        """Open the corpora."""
        args = self.training_args
        train, valid = open_data(self.data_args, args, config.vocab_size)
        ledger = open_ledger(continuation, train, args) if args.do_train else None
        return PretrainingData(
            train,
            valid,
            Collator(self.sequence_length),
            Padding(),
            ledger,
            args,
            steps=args.max_steps,
            mean_length=self.sequence_length,
        )

    def make_loss(self, model, data: TrainingData) -> "PretrainingLoss":
        """Return the loss of pretraining."""
        return PretrainingLoss()

    def random_weights_loss(self, shape) -> float | None:
        """Return the first loss of random weights; None for pretrained ones."""
        return None if self.model_args.continue_training else shape.first_loss


class PretrainingData(TrainingData):
    """Every sample has mean_length tokens."""

    def step_text(self, global_batch: int) -> str:
        """Return the size of a step, for the line at the start."""
        return f"{global_batch * self.mean_length:,} tokens ({global_batch} samples of {self.mean_length})"

    def tokens_until(self, step: int) -> int:
        """Return the tokens read before a step."""
        return self.ledger.tokens + (self.stream.position(step) - self.stream.start) * int(self.mean_length)


class Collator:
    """Samples of equal length to one batch: {"input_ids": int64 [batch, length], "labels": the same}.

    Tokens are copied once, from the memory-mapped files into the batch.
    """

    def __init__(self, sequence_length: int):
        self.sequence_length = sequence_length

    def __call__(self, samples: list) -> dict:
        """Return the batch of some samples."""
        shape = (len(samples), self.sequence_length)
        batch = {key: np.empty(shape, dtype=np.int64) for key in ("input_ids", "labels")}
        for row, sample in enumerate(samples):
            sample.write(batch["input_ids"][row], batch["labels"][row])
        return batch


class Padding:
    """A sample whose labels count for nothing."""

    def write(self, input_ids: np.ndarray, labels: np.ndarray) -> None:
        """Write padding."""
        input_ids[:] = 0
        labels[:] = IGNORED


class PretrainingLoss(Loss):
    """The model's own: the mean over the tokens of a micro batch, of which all have equally many."""

    def __call__(self, model, inputs: dict, return_outputs: bool):
        """Return the loss of a batch."""
        outputs = self.outputs(model, inputs, inputs["labels"])
        loss = outputs
        if isinstance(outputs, dict):
            loss = outputs["loss"]
        elif isinstance(outputs, tuple):
            loss = outputs[0]
        return (loss, outputs) if return_outputs else loss

    def batch_sums(self, trainer, model, inputs: dict) -> list[float]:
        """Return the sums of a batch."""
        counted = int((inputs["labels"] != IGNORED).sum())
        if trainer.args.pipeline_parallel_degree > 1:
            with summed_over_tokens(model):
                loss, _, _ = trainer.prediction_step(model, inputs, prediction_loss_only=True)
            return [float(loss) * trainer.args.gradient_accumulation_steps, counted]
        loss, _, _ = trainer.prediction_step(model, inputs, prediction_loss_only=True)
        return [float(loss) * counted if counted else 0.0, counted]
