"""The loss of a Trainer: what a batch's is, and how an evaluated batch counts; the same in every layout."""

import contextlib
import math
from collections.abc import Callable
from typing import Any

import paddle
from paddlenlp.peft import LoRAModel

from data_tools.dialogues.encoding import IGNORED
from launch.training.chunked_loss import ChunkedHead, CorrectTokens, chunked_head
from launch.upstream.token_loss import token_entropies


class Loss:
    """The part of a Trainer that pretraining, fine-tuning and preference tuning define for themselves.

    Attributes:
        head: The output layer where it computes the losses in chunks, else None. of_text: whether it is the mean
            -ln p of tokens, whose usual course the loss watch knows. may_rest: whether a gradient of 0 means that
            all is learned.
        likelihoods: Of PairWatch (launch/watch.py), None where no pairs are compared.
        warning: From a record of a training to a warning about it, None where there is none.
    """

    head: ChunkedHead | None = None
    of_text = True
    may_rest = False
    likelihoods: Callable[[dict], tuple[float, float]] | None = None
    warning: Callable[[dict], str | None] | None = None

    def attach(self, model, args) -> None:
        """Attach the loss to a model before it is wrapped for its layout. A pipeline has its loss in its last stage."""
        self.head = chunked_head(model)
        if self.head:
            self.head.micro_batches = args.gradient_accumulation_steps
        if self.head and args.pipeline_parallel_degree > 1:
            layers = model.model if isinstance(model, LoRAModel) else model
            layers._loss_fn = [of_hidden_states(self.head, criterion) for criterion in layers._loss_fn]

    def prepare(self, trainer) -> None:
        """Prepare once before the first batch, in training and in evaluation. All ranks call it together.

        The model is wrapped for its layout, and still as it is without a checkpoint.
        """

    def state(self, global_step: int) -> Any:
        """Return what the loss needs to go on after a step, beside data and weights, as JSON; None: nothing."""
        return None

    def restore(self, state: Any) -> None:
        """Take over the state of a checkpoint."""

    def scaled_by(self, scaler) -> None:
        """Register the loss scaler before float16 training starts."""
        if self.head:
            self.head.scaler = scaler

    def outputs(self, model, inputs: dict, labels: paddle.Tensor):
        """Return the model's outputs; in chunks, losses of these labels in place of logits."""
        with self.head.of(labels) if self.head else contextlib.nullcontext():
            return model(**inputs)

    def start_step(self, global_step: int) -> None:
        """Prepare each micro batch of the step after global_step."""

    def start_evaluation(self) -> None:
        """Prepare a batch that is computed outside of training."""

    def prepare_evaluation(self, trainer, dataset) -> None:
        """Prepare the first batch of an evaluation. All ranks call it together."""

    def training_inputs(self, inputs: dict) -> dict:
        """Return a pipeline's inputs of a micro batch of training, its "labels" in the last stage alone."""
        return inputs

    def evaluation_inputs(self, inputs: dict) -> dict | list[dict]:
        """Return a pipeline's inputs of a batch of evaluation.

        They are the whole batch, which upstream cuts by rows, or micro batches.
        """
        return inputs

    def __call__(self, model, inputs: dict, return_outputs: bool):
        """Return the loss of a batch; (loss, (loss, logits)) with return_outputs."""
        raise NotImplementedError

    def batch_sums(self, trainer, model, inputs: dict) -> list[float]:
        """Return [loss in nats, tokens, ...] of a batch, summed over its target tokens.

        All ranks of a model take part.
        """
        raise NotImplementedError

    def interval(self) -> dict:
        """Return the further values of an interval's training record, beside the loss. All ranks call it together."""
        return {}

    def metrics(self, sums: list[float]) -> dict:
        """Return the metrics of an evaluation, from the sums of all its batches."""
        loss_sum, tokens = sums[:2]
        loss = loss_sum / tokens
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),  # beyond e^709 a float is infinite
            "tokens": int(tokens),
        }


def of_hidden_states(head: ChunkedHead, criterion):
    """Return the criterion of a pipeline whose last layer leaves losses to it."""

    def loss(hidden_states, labels):
        return criterion(head.scores(hidden_states, labels), labels)

    return loss


@contextlib.contextmanager
def summed_over_tokens(pipeline):
    """Let `pipeline.eval_batch` times its accumulate_steps give the sum of the losses of all tokens within the block.

    Upstream averages the means of the micro batches: where padding leaves some of them fewer tokens than others, or
    none, their tokens weigh more, or a micro batch without any counts as one with loss 0.
    """
    layers = pipeline._layers
    criteria = layers._loss_fn
    layers._loss_fn = [_summed(criterion) for criterion in criteria]
    try:
        yield
    finally:
        layers._loss_fn = criteria


def _summed(mean_loss):
    """Return the criterion times the tokens that it averages over."""

    def loss(output, labels):
        return mean_loss(output, labels) * (labels != IGNORED).sum().astype("float32")

    return loss


class TokenLoss:
    """The loss of fine-tuning: cross-entropy summed over target tokens, divided by `divisor`.

    Serves as the criterion of a pipeline, too.

    Models average over the tokens of one micro batch, and training then averages these means: a token of a short answer
    weighs more than one of a long answer, and how much depends on micro batch, accumulation and data ranks. LLaMA's
    criterion also leaves out tokens whose loss is exactly 0. Here the sum over a micro batch is divided by its share of
    all tokens of the step, so that the mean over micro batches and data ranks is the mean over tokens.

    Attributes:
        divisor: To be set before each step.
        correct: Counts where it is told to.
    """

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size
        self.divisor = 1.0
        self.correct = CorrectTokens()

    def __call__(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the loss of a micro batch, a float32 scalar.

        logits: [batch, length, vocabulary or this rank's part of it], or losses, [batch, length, 1]. labels: [batch,
        length], shifted by one position, IGNORED where nothing counts.
        """
        logits = logits.astype("float32")
        sharded = 1 < logits.shape[-1] < self.vocab_size
        counted = labels != IGNORED
        with paddle.amp.auto_cast(False):
            losses = token_entropies(logits, labels, sharded).squeeze(-1)
            loss = (losses * counted.astype("float32")).sum() / self.divisor
        if logits.shape[-1] > 1:
            self.correct.add(logits, labels, sharded)
        return loss
