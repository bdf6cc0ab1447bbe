"""What the layers of a mixture of experts share: each token goes to some of the experts, and gets a weighted sum.

paddlenlp's blocks each do this in a way of their own, with faults (launch/upstream, the families' files).
"""

import paddle
from paddle import nn


def routed(logits: paddle.Tensor, k: int, normalized: bool) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return (weights in float32, numbers of the experts) of each token, both [tokens, k].

    Args:
        logits: Of the router, [tokens, experts].
        k: Experts of a token.
        normalized: The weights of a token sum to 1, else they are its shares among all experts.
    """
    with paddle.amp.auto_cast(False):
        weights, chosen = paddle.topk(nn.functional.softmax(logits.astype("float32"), axis=-1), k, axis=-1)
        return (weights / weights.sum(axis=-1, keepdim=True) if normalized else weights), chosen


def routed_with_bias(
    logits: paddle.Tensor, bias: paddle.Tensor, k: int, least: float
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return what routed() returns, for experts that are chosen by their shares plus a bias [1, experts].

    The weights are the shares without it, divided by their sum, or by `least` where that is more.
    """
    with paddle.amp.auto_cast(False):
        shares = nn.functional.softmax(logits.astype("float32"), axis=-1)
        _, chosen = paddle.topk(shares.detach() + bias, k, axis=-1)
        weights = paddle.take_along_axis(shares, chosen, axis=-1)
        return weights / weights.sum(axis=-1, keepdim=True).clip(min=least), chosen


def mixed(rows: paddle.Tensor, weights: paddle.Tensor, chosen: paddle.Tensor, experts: nn.LayerList):
    """Return the sum over k of weights[t, k] * experts[chosen[t, k]](rows[t]), as rows: [tokens, hidden].

    weights, chosen: [tokens, k], in the dtype of rows and int64. Tokens are sorted by their experts, so each expert
    computes its own in one go. An expert that no token chose computes the first token, and nothing reads its output:
    its weights have gradients, zeros, on every rank, for which sharding and data parallelism wait. No two rows are
    added into one place, whose order a card does not keep: gradients are the same from run to run.
    """
    (tokens, k), hidden = chosen.shape, rows.shape[-1]
    order, sizes = _sorted_by_expert(chosen.flatten(), len(experts))
    copies = rows.unsqueeze(1).expand([tokens, k, hidden]).reshape([tokens * k, hidden])
    sources = paddle.where(order < tokens * k, order, paddle.zeros_like(order))
    parts = paddle.split(paddle.gather(copies, sources), sizes)
    del copies
    outputs = paddle.concat([expert(part) for expert, part in zip(experts, parts, strict=True)])
    places = paddle.argsort(order)[: tokens * k]
    outputs = paddle.gather(outputs, places).reshape([tokens, k, hidden])
    return paddle.matmul(weights.unsqueeze(1), outputs).squeeze(1)


def _sorted_by_expert(chosen: paddle.Tensor, experts: int) -> tuple[paddle.Tensor, list[int]]:
    """Return (places in `chosen` in the order of the experts, how many each expert has).

    An expert without a token gets a place behind the last. The numbers come to the host: the one wait of a layer.
    """
    counts = paddle.bincount(chosen, minlength=experts).numpy()
    idle = [expert for expert, count in enumerate(counts) if count == 0]
    if idle:
        chosen = paddle.concat([chosen, paddle.to_tensor(idle, chosen.dtype)])
    return paddle.argsort(chosen, stable=True), [max(int(count), 1) for count in counts]
