"""The loss that a causal language model returns, for families whose own is wrong in parallel or with ignored labels.

GLMForConditionalGeneration.forward = with_token_loss(GLMForConditionalGeneration.forward)
"""

import functools
import inspect
from collections.abc import Callable

import paddle
from paddle.distributed.fleet.meta_parallel import ParallelCrossEntropy
from paddlenlp.transformers.model_outputs import ModelOutput

from data_tools.dialogues.encoding import IGNORED


def with_token_loss(stock_forward: Callable) -> Callable:
    """Return a forward that computes the logits as `stock_forward` does, and the loss by token_loss."""
    signature = inspect.signature(stock_forward)

    @functools.wraps(stock_forward)
    def forward(*args, **kwargs):
        call = signature.bind(*args, **kwargs)
        labels = call.arguments.pop("labels", None)
        outputs = stock_forward(*call.args, **call.kwargs)
        if labels is None:
            return outputs
        config = call.arguments["self"].config
        parallel = config.tensor_parallel_degree > 1 and config.tensor_parallel_output
        if isinstance(outputs, ModelOutput):
            outputs.loss = token_loss(outputs["logits"], labels, parallel)
            return outputs
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return (token_loss(outputs[0], labels, parallel), *outputs)

    return forward


def token_loss(logits: paddle.Tensor, labels: paddle.Tensor, parallel: bool) -> paddle.Tensor:
    """Return the mean cross-entropy in nats over labels other than -100, a scalar.

    Args:
        logits: [batch, length, vocabulary], or under tensor parallel (`parallel`) this rank's shard of the
            vocabulary.
        labels: [batch, length], already shifted: labels[:, i] is what logits[:, i] predict.
        parallel: See logits.
    """
    losses = token_entropies(logits.astype("float32"), labels, parallel)
    counted = (labels != IGNORED).unsqueeze(-1).astype("float32")
    return (losses * counted).sum() / counted.sum().clip(min=1.0)


def token_entropies(logits: paddle.Tensor, labels: paddle.Tensor, sharded: bool) -> paddle.Tensor:
    """Return the cross-entropy of each token in nats, [..., 1], 0 where its label is IGNORED.

    logits: float32 [..., vocabulary]; sharded: this rank of tensor parallelism has a part of the vocabulary. Losses
    that the output layer gives in place of logits, [..., 1] (launch/training/chunked_loss.py), are taken as they are.
    """
    if logits.shape[-1] == 1:
        return logits
    labels = labels.unsqueeze(-1)
    if sharded:
        return ParallelCrossEntropy(ignore_index=IGNORED)(logits, labels)
    return paddle.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
