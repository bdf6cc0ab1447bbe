"""An optimizer's step with its states, gradients and sliced parameters in host memory: one parameter at a time."""

from collections import defaultdict
from types import MethodType

import paddle
from paddle import _C_ops, _legacy_C_ops

from launch.offload.host_memory import HostMemory, KeptTensors


def keep_states(optimizer, host: HostMemory) -> None:
    """Keep the states that the optimizer will create (moments, master weights) in the host, and fetch them to update.

    optimizer: paddle's own, before sharding wraps it.
    """
    optimizer._accumulators = defaultdict(lambda: KeptTensors(host))
    optimizer._master_weights = KeptTensors(host)
    update, update_all = optimizer._append_optimize_op, optimizer._create_optimization_pass
    following: dict[str, tuple] = {}  # name of a parameter -> the next pair

    def parts(pair) -> tuple[list, list]:
        """Return (gradient, [parameter, master weight, moments])."""
        parameter, gradient = pair
        of_parameter = [optimizer._master_weights.get(parameter.name)]
        of_parameter += [states.get(parameter.name) for states in optimizer._accumulators.values()]
        return [gradient], [parameter, *(state for state in of_parameter if state is not None)]

    def update_on_device(block, pair):
        read, write = parts(pair)
        with host.on_device(read, write):
            behind = following.get(pair[0].name)
            if behind is not None:
                host.prefetch(sum(parts(behind), []))
            update(block, pair)

    def update_one_by_one(pairs, param_group_idx=0):
        following.clear()
        following.update({pair[0].name: behind for pair, behind in zip(pairs, pairs[1:], strict=False)})
        done = update_all(pairs, param_group_idx)
        host.settle()
        return done

    optimizer._append_optimize_op = update_on_device
    optimizer._create_optimization_pass = update_one_by_one


class StreamedClip:
    """Paddle's clipping by the global norm; gradients are copied to the device one by one, to be summed and scaled."""

    def __init__(self, clip, host: HostMemory):
        self._clip, self._host = clip, host

    def __call__(self, pairs: list) -> list:
        """Clip the gradients."""
        self._clip(_Streamed(pairs, self._host))
        return pairs

    def __getattr__(self, name: str):
        return getattr(self._clip, name)


class _Streamed(list):
    """(parameter, gradient) pairs. Clipping iterates twice: it reads all gradients, then scales all in place."""

    def __init__(self, pairs: list, host: HostMemory):
        super().__init__(pairs)
        self.host, self.read = host, False

    def __iter__(self):
        write, self.read = self.read, True
        for pair in super().__iter__():
            gradients = [pair[1]]
            with self.host.on_device(*([], gradients) if write else (gradients, [])):
                yield pair


def unscale_on_device(scaler, host: HostMemory) -> None:
    """Divide gradients by the loss scale one by one.

    Upstream's scaler of stage 2 and 3 passes all to one kernel (GroupShardedScaler in group_sharded_utils.py); values
    and the decision of all ranks are the same.
    """

    def unscale(self, optimizer) -> None:
        if not self._enable:
            return
        if hasattr(optimizer, "update_slice"):  # stage 3: its optimizer has slices for the parameters from here on
            optimizer.update_slice()
            optimizer.update_scaler = True
        found = paddle.zeros([1], "bool")
        for parameter in optimizer._optim._parameter_list:
            gradient = parameter.grad
            if gradient is None:
                continue
            with host.on_device(write=[gradient]):
                overflow = paddle.zeros([1], "bool")
                _legacy_C_ops.check_finite_and_unscale(  # pyright: ignore[reportAttributeAccessIssue]  # made at import
                    [gradient], self._scale, [gradient], overflow
                )
                found = _C_ops.bitwise_or(found, overflow)
        found = found.cast("int32")
        paddle.distributed.all_reduce(found, op=paddle.distributed.ReduceOp.MAX, group=None)
        self._found_inf = found.cast("bool")

    scaler._unscale = MethodType(unscale, scaler)
