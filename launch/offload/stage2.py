"""Stage 2 with this rank's reduced gradients in host memory.

Gradients of tensors that sharding reduces one by one; those of smaller ones stay in its buffer.
"""

from contextlib import contextmanager

import paddle
import paddle.distributed as dist
from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_stage2 import GroupShardedStage2

from launch.offload.host import HostMemory


def offloaded_stage2(host: HostMemory) -> type[GroupShardedStage2]:
    class OffloadedStage2(GroupShardedStage2):
        def _get_scaled_grad_fn(self, param):
            """What a gradient meets before it is added to that of the micro batches before."""
            scale = super()._get_scaled_grad_fn(param)

            @paddle.autograd.no_grad()
            def bring_back_and_scale(gradient):
                if param.grad is not None:
                    host.take_back(param.grad)
                return scale(gradient)

            return bring_back_and_scale

        def _get_reduce_fn(self, index, param, dst_rank):
            """What happens to a gradient when it is there."""
            reduce = super()._get_reduce_fn(index, param, dst_rank)
            if dst_rank != self._rank or (self._use_grad_storage and self._has_grad_storage[index]):
                return reduce

            @paddle.autograd.no_grad()
            def reduce_and_keep(*_):
                reduce()
                host.keep(param.grad)

            return reduce_and_keep

        @paddle.no_grad()
        def _grad_scale(self):
            """The mean over ranks, where that was not formed gradient by gradient."""
            with self._without_kept():
                super()._grad_scale()
            scale = (self._world_size_scaling if self.scale_in_opt else 1.0) * (1.0 / self._data_parallel_degree)
            for gradient in self._kept_gradients() if scale != 1 else ():
                with host.on_device(write=[gradient]):
                    gradient.scale_(scale=scale)

        @paddle.no_grad()
        def _dp_allreduce(self):
            """The sum over the sharding groups, where there are several."""
            with self._without_kept():
                super()._dp_allreduce()
            if self._data_parallel_degree > 1:
                for gradient in self._kept_gradients():
                    with host.on_device(write=[gradient]):
                        dist.all_reduce(gradient, group=self._dp_group)

        @property
        def _data_parallel_degree(self) -> int:
            return self._dp_group.nranks if self._dp_group is not None else 1

        @contextmanager
        def _without_kept(self):
            """Upstream does not see the gradients that were reduced one by one, those in the host among them."""
            reduced, self._param_grads = self._param_grads, []
            yield
            self._param_grads = reduced

        def _clear_gradients(self):
            for parameter in self._trainable_params:
                if parameter.grad is not None and host.holds(parameter.grad):
                    host.forget(parameter.grad)
                    parameter.clear_gradient(False)
            super()._clear_gradients()

        def _kept_gradients(self) -> list:
            gradients = (parameter.grad for parameter in self._trainable_params)
            return [one for one in gradients if one is not None and host.holds(one)]

    return OffloadedStage2
