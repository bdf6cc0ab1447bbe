"""Operators of tensor parallelism that have no CPU kernel.

Upstream: the layers of paddle.distributed.fleet.layers.mpu call c_identity, c_split, c_concat and
c_softmax_with_cross_entropy. (c_embedding has a CPU kernel.)
Without the bridge: RuntimeError "Do not support c_identity for cpu kernel now", and so on.
Here: the same out of ordinary operators and collectives, for the one module that calls them. The gradients of
c_identity and c_split are upstream's: their callers bring them along. (That of c_split gathers along the
first axis although the last one was split, on GPUs, too: with more than one axis its shape is wrong. Our
models do not use it.)
"""

import paddle
from paddle.autograd import PyLayer
from paddle.distributed.collective import _get_group_map
from paddle.distributed.fleet.layers.mpu import mp_ops

from launch.upstream.module_view import ModuleView


class Concat(PyLayer):
    """Gather the last axis of all ranks; the gradient is this rank's slice of it."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = []
        paddle.distributed.all_gather(parts, x.contiguous(), group=group)
        return paddle.concat(parts, axis=-1)

    @staticmethod
    def backward(ctx, gradient):
        return paddle.split(gradient, ctx.group.nranks, axis=-1)[ctx.group.rank].clone()


class ParallelCrossEntropy(PyLayer):
    """Cross entropy of logits whose last axis, the vocabulary, is split over the ranks.

    logits [..., vocabulary / ranks], label [..., 1] with ids of the whole vocabulary;
    gives softmax [..., vocabulary / ranks] and loss [..., 1], which is 0 where label is ignore_index.
    """

    @staticmethod
    def forward(ctx, logits, label, ignore_index, group):
        x = logits.astype("float32")
        largest = x.max(axis=-1, keepdim=True)
        paddle.distributed.all_reduce(largest, op=paddle.distributed.ReduceOp.MAX, group=group)
        x = x - largest
        exponentials = paddle.exp(x)
        total = exponentials.sum(axis=-1, keepdim=True)
        paddle.distributed.all_reduce(total, group=group)

        size = x.shape[-1]
        local_label = label - group.rank * size
        is_here = (local_label >= 0) & (local_label < size)
        local_label = paddle.where(is_here, local_label, paddle.zeros_like(local_label))
        is_here = is_here.astype("float32")
        target = paddle.take_along_axis(x, local_label, axis=-1) * is_here
        paddle.distributed.all_reduce(target, group=group)

        is_counted = (label != ignore_index).astype("float32")
        softmax = exponentials / total
        ctx.save_for_backward(softmax, local_label, is_here, is_counted)
        ctx.dtype = logits.dtype
        return softmax.astype(logits.dtype), (paddle.log(total) - target) * is_counted

    @staticmethod
    def backward(ctx, _softmax_gradient, loss_gradient):
        softmax, local_label, is_here, is_counted = ctx.saved_tensor()
        target = paddle.nn.functional.one_hot(local_label.squeeze(-1), softmax.shape[-1]) * is_here
        gradient = (softmax - target) * (loss_gradient.astype("float32") * is_counted)
        return gradient.astype(ctx.dtype), None


def _c_identity(x, ring_id, *flags):
    return paddle.assign(x)


def _c_split(x, rank, nranks, ring_id, *flags):
    return paddle.split(x, nranks, axis=-1)[rank].clone()


def _c_concat(x, rank, nranks, ring_id, *flags):
    return Concat.apply(x, _get_group_map()[ring_id])


def _c_softmax_with_cross_entropy(logits, label, ignore_index, ring_id, rank, nranks):
    return ParallelCrossEntropy.apply(logits, label, ignore_index, _get_group_map()[ring_id])


def install() -> None:
    mp_ops._C_ops = ModuleView(
        mp_ops._C_ops,
        c_identity=_c_identity,
        c_split=_c_split,
        c_concat=_c_concat,
        c_softmax_with_cross_entropy=_c_softmax_with_cross_entropy,
    )
