"""Element-wise results that keep the permutation of a transposed operand, as Paddle 3.3's strided kernels give them on
cards (FLAGS_use_stride_compute_kernel), and their gradients likewise. For ranks that have Paddle: an observer of
tests/runs.py. launch/devices/paddle_flags.py switches those kernels off; a run should not need that.
"""

import paddle

OPERATORS = ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "neg", "pow")
METHODS = [*(f"__{name}__" for name in OPERATORS), "astype", "cast"]
FUNCTIONS = ["silu", "gelu", "dropout"]


class _Laid(paddle.autograd.PyLayer):
    """The same values, in memory as `order` has the axes, for the gradient, too."""

    @staticmethod
    def forward(ctx, x, order):
        ctx.order = order
        return laid_out(x, order)

    @staticmethod
    def backward(ctx, gradient):
        return laid_out(gradient, ctx.order)


def laid_out(x, order):
    back = [order.index(axis) for axis in range(len(order))]
    return x.transpose(order).contiguous().transpose(back)


def install():
    """Patch Paddle in this process. Returns what tells how many results were laid out."""
    assert paddle.get_flags(["FLAGS_use_stride_kernel"]) == {"FLAGS_use_stride_kernel": True}, "there are no views"
    counted = {"permuted": 0}

    def keeping(stock):
        def operator(*args, **kwargs):
            found = stock(*args, **kwargs)
            for x in args[:2]:
                if isinstance(x, paddle.Tensor) and x.shape == found.shape and not x.is_contiguous():
                    order = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
                    counted["permuted"] += 1
                    return _Laid.apply(found, order)
            return found

        return operator

    for name in METHODS:
        setattr(paddle.Tensor, name, keeping(getattr(paddle.Tensor, name)))
    for name in FUNCTIONS:
        setattr(paddle.nn.functional, name, keeping(getattr(paddle.nn.functional, name)))
    return lambda: counted


def pretrain_chatglm2(directory, output, permuted):
    """Three steps in a pipeline of two stages."""
    from tests.families.pretraining_ranks import pretrain

    if permuted:
        install()
    pretrain(directory, "chatglm_v2", output, ["--pipeline_parallel_degree", "2"])
