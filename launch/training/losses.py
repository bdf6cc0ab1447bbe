"""The loss of a Trainer: what a batch's is, and how an evaluated batch counts; the same in every layout."""

import contextlib
import math

import paddle
from paddle.distributed import fleet

from data_tools.formats.dialogues.encoding import IGNORED


class Loss:
    """The part of a Trainer that pretraining and fine-tuning define for themselves."""

    def attach(self, model, args) -> None:
        """Before the model is wrapped for its layout. A pipeline has its loss in its last stage."""

    def start_step(self, global_step: int) -> None:
        """Before each micro batch of the step after global_step."""

    def start_evaluation(self) -> None:
        """Before a batch is computed outside of training."""

    def __call__(self, model, inputs: dict, return_outputs: bool):
        """The loss of a batch; (loss, (loss, logits)) with return_outputs."""
        raise NotImplementedError

    def batch_sums(self, trainer, model, inputs: dict) -> list[float]:
        """(loss in nats, tokens, ...) of a batch, summed over its counted tokens. All ranks of a model take part."""
        raise NotImplementedError

    def metrics(self, sums: list[float]) -> dict:
        """What an evaluation reports, from the sums of all its batches."""
        loss_sum, tokens = sums[:2]
        loss = loss_sum / tokens
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),  # beyond e^709 a float is infinite
            "tokens": int(tokens),
        }


@contextlib.contextmanager
def summed_over_tokens(pipeline):
    """While this lasts, `pipeline.eval_batch` times its accumulate_steps gives the sum of the losses of all tokens.

    Upstream averages the means of the micro batches: where padding leaves some of them fewer tokens than others, or
    none, those tokens weigh more, or a micro batch without any counts as one with loss 0.
    """
    layers = pipeline._layers
    criteria = layers._loss_fn
    layers._loss_fn = [_summed(criterion) for criterion in criteria]
    try:
        yield
    finally:
        layers._loss_fn = criteria


def _summed(mean_loss):
    """The criterion times the tokens it is the mean of."""

    def loss(output, labels):
        return mean_loss(output, labels) * (labels != IGNORED).sum().astype("float32")

    return loss


class TokenLoss:
    """The loss of fine-tuning: cross-entropy summed over counted tokens, divided by `divisor`. Serves as the criterion
    of a pipeline, too.

    Models average over the tokens of one micro batch, and training then averages these means: a token of a short answer
    weighs more than one of a long answer, and how much depends on micro batch, accumulation and data ranks. LLaMA's
    criterion also leaves out tokens whose loss is exactly 0. Here the sum over a micro batch is divided by its share of
    all tokens of the step, so that the mean over micro batches and data ranks is the mean over tokens.

    divisor: to be set before each step. correct: the number of tokens whose most likely id was right, of the batches
    computed inside `counting_correct`.
    """

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size
        self.divisor = 1.0
        self.counts_correct = False
        self.correct = 0

    @contextlib.contextmanager
    def counting_correct(self):
        """Count from 0 while this lasts."""
        self.counts_correct, self.correct = True, 0
        try:
            yield
        finally:
            self.counts_correct = False

    def __call__(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """logits: [batch, length, vocabulary or this rank's part of it]; labels: [batch, length], those of the next
        position, IGNORED where nothing counts. Returns a float32 scalar."""
        logits = logits.astype("float32")
        sharded = logits.shape[-1] < self.vocab_size
        if sharded:
            entropy = fleet.meta_parallel.ParallelCrossEntropy(ignore_index=IGNORED)
        else:
            entropy = paddle.nn.CrossEntropyLoss(reduction="none", ignore_index=IGNORED)
        counted = labels != IGNORED
        with paddle.amp.auto_cast(False):
            losses = entropy(logits, labels.unsqueeze(-1)).squeeze(-1)
            loss = (losses * counted.astype("float32")).sum() / self.divisor
        if self.counts_correct:
            likely = most_likely(logits, sharded)
            self.correct += int(((likely == labels) & counted).sum())
        return loss


def most_likely(logits: paddle.Tensor, sharded: bool) -> paddle.Tensor:
    """int64 [batch, length]: the id with the largest logit. sharded: whether each rank of tensor parallelism has a part
    of the vocabulary."""
    ids = logits.argmax(axis=-1)
    if not sharded:
        return ids
    group = fleet.get_hybrid_communicate_group().get_model_parallel_group()
    largest, all_ids = [], []
    paddle.distributed.all_gather(largest, logits.max(axis=-1), group=group)
    paddle.distributed.all_gather(all_ids, ids + group.rank * logits.shape[-1], group=group)
    owner = paddle.stack(largest).argmax(axis=0, keepdim=True)
    return paddle.take_along_axis(paddle.stack(all_ids), owner, axis=0).squeeze(0)
