"""Collectives that ProcessGroupGloo lacks, or gets wrong.

Upstream: tensor parallelism, pipelines and sharding call the variants "*_on_calc_stream", which NCCL groups
order on the computation's stream, and reduce-scatter.
Without the bridge: NotImplementedError "ProcessGroupGLOO does not support ... with sync_op and
use_calc_stream flag", or "... does not support reduce_scatter".
Here: a CPU has no streams, so they are the plain collectives, waited for. Reduce-scatter is an all-reduce of
which each rank keeps its rows.

Upstream: gloo sums float16 into inf, without an error. Here: refused.
"""

import paddle
from paddle.base import core

from launch.errors import UserError

Gloo = core.ProcessGroupGloo
SUM = core.ReduceOp.SUM


class Done:
    """The task of a collective that has ended."""

    def wait(self, *args) -> bool:
        return True

    is_completed = synchronize = wait


def finish(task) -> Done:
    task.wait()
    return Done()


@paddle.no_grad()
def write(tensor: paddle.Tensor, value: paddle.Tensor) -> None:
    """Fill `tensor` with `value`, as a collective does: out of autograd's sight.

    Outside of no_grad, paddle.assign records itself: a tensor that requires a gradient is then no leaf any
    more, its gradient ends in `value`, and training goes on with wrong numbers.
    """
    paddle.assign(value, tensor)


def reduce_scatter_tensor(group, out, tensor, op=SUM, sync_op=True) -> Done:
    """Reduce [size * rows, ...] over the group; `out`, [rows, ...], gets this rank's rows."""
    rows = out.shape[0]
    if tensor.shape != [group.size() * rows, *out.shape[1:]]:
        shapes = f"{list(tensor.shape)} does not split into {list(out.shape)}"
        raise ValueError(f"reduce_scatter over {group.size()} ranks: {shapes}")
    with paddle.no_grad():
        total = tensor.clone()
    finish(group.all_reduce(total, op, True))
    write(out, total[group.rank() * rows : (group.rank() + 1) * rows])
    return Done()


def _refusing_float16(reduction):
    """The reduction `method(group, tensor, ...)`, with an error instead of inf."""

    def checked(group, tensor, *args):
        if tensor.dtype == paddle.float16:
            raise UserError(
                "fp16: float16 cannot be summed over processes on a CPU (gloo returns inf); "
                "rehearse in float32: --fp16 0"
            )
        return reduction(group, tensor, *args)

    return checked


def install() -> None:
    all_reduce = Gloo.all_reduce = _refusing_float16(Gloo.all_reduce)
    reduce = Gloo.reduce = _refusing_float16(Gloo.reduce)
    Gloo.all_reduce_on_calc_stream = lambda group, tensor, op=SUM: finish(all_reduce(group, tensor, op, True))
    Gloo.reduce_on_calc_stream = lambda group, tensor, dst, op=SUM: finish(reduce(group, tensor, dst, op, True))
    Gloo.broadcast_on_calc_stream = lambda group, tensor, src: finish(group.broadcast(tensor, src, True))
    Gloo.all_gather_on_calc_stream = lambda group, outs, tensor: finish(group.all_gather(outs, tensor, True))
    Gloo.all_gather_into_tensor_on_calc_stream = lambda group, out, tensor: finish(
        group.all_gather_into_tensor(out, tensor, True)
    )
    Gloo.reduce_scatter_tensor = reduce_scatter_tensor
    Gloo.reduce_scatter_tensor_on_calc_stream = reduce_scatter_tensor
