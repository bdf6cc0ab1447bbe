"""The loss that a causal language model returns, for families whose own is wrong in parallel or with ignored labels.

GLMForConditionalGeneration.forward = with_token_loss(GLMForConditionalGeneration.forward)
"""

import functools
import inspect
from collections.abc import Callable

import paddle
from paddle.distributed import fleet
from paddlenlp.transformers.model_outputs import ModelOutput

from data_tools.formats.dialogues.encoding import IGNORED


def with_token_loss(stock_forward: Callable) -> Callable:
    """A forward that computes the logits as `stock_forward` does, and the loss by token_loss."""
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
            outputs.loss = token_loss(outputs.logits, labels, parallel)
            return outputs
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return (token_loss(outputs[0], labels, parallel), *outputs)

    return forward


def token_loss(logits: paddle.Tensor, labels: paddle.Tensor, parallel: bool) -> paddle.Tensor:
    """Mean cross-entropy in nats over labels other than -100, a scalar.

    logits: [batch, length, vocabulary], or under tensor parallel (`parallel`) this rank's part of the vocabulary.
    labels: [batch, length], already shifted: labels[:, i] is what logits[:, i] predict.
    """
    logits, labels = logits.astype("float32"), labels.unsqueeze(-1)
    if parallel:
        losses = fleet.meta_parallel.ParallelCrossEntropy(ignore_index=IGNORED)(logits, labels)
    else:
        losses = paddle.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
    counted = (labels != IGNORED).astype("float32")
    return (losses * counted).sum() / counted.sum().clip(min=1.0)
