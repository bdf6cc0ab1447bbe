"""Stage 2 with this rank's reduced gradients in host memory.

Gradients of tensors that sharding reduces one by one; those of smaller ones stay in its buffer.
"""

import paddle
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
            kept = self._kept_gradients()
            buffered, self._param_grads = self._param_grads, []
            super()._grad_scale()
            self._param_grads = buffered
            if self.scale_in_opt:
                for gradient in kept:
                    with host.on_device(write=[gradient]):
                        gradient.scale_(scale=self._world_size_scaling)

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
