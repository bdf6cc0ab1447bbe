"""The evaluation loss of a pipeline, weighed by tokens."""

import contextlib

IGNORED = -100  # the label of a position that counts for nothing


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
