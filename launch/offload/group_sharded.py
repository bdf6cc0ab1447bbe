"""Sharding stages 2 and 3 with offload, and offload in a Trainer's run.

Stage 2 keeps this rank's reduced gradients in host memory: those of tensors that sharding reduces one by one; those of
smaller ones stay in its buffer.

Stage 3 keeps the slices of parameters, trained and frozen, and those of their gradients in host memory. A layer's
slices are copied to the device to be gathered. Their host memory keeps its values meanwhile, so that a layer that is
done needs no copy back: the optimizer alone writes there. The model is read into host memory, too, and sharded
tensor by tensor: a card has room for its largest tensor, not for the model.
"""

from contextlib import contextmanager

import paddle
import paddle.distributed as dist
from paddle.distributed.fleet.meta_parallel.sharding import group_sharded_stage3
from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_stage2 import GroupShardedStage2
from paddle.distributed.sharding import group_sharded

from launch.offload.host_memory import HostMemory, host_memory
from launch.offload.streamed_optimizer import StreamedClip, keep_states, unscale_on_device


def offloaded_stage2(host: HostMemory) -> type[GroupShardedStage2]:
    """Return stage 2 with offloaded gradients."""

    class OffloadedStage2(GroupShardedStage2):
        def _get_scaled_grad_fn(self, param):
            """Return upstream's function for a new gradient, after the sum of earlier ones is back on the device."""
            scale = super()._get_scaled_grad_fn(param)

            @paddle.autograd.no_grad()
            def bring_back_and_scale(gradient):
                if param.grad is not None:
                    host.take_back(param.grad)
                return scale(gradient)

            return bring_back_and_scale

        def _get_reduce_fn(self, index, param, dst_rank):
            """Return upstream's function that reduces a gradient; the result goes to the host."""
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
            """Divide gradients to the mean over ranks, where that was not done gradient by gradient."""
            with self._without_kept():
                super()._grad_scale()
            scale = (self._world_size_scaling if self.scale_in_opt else 1.0) * (1.0 / self._data_parallel_degree)
            for gradient in self._kept_gradients() if scale != 1 else ():
                with host.on_device(write=[gradient]):
                    gradient.scale_(scale=scale)

        @paddle.no_grad()
        def _dp_allreduce(self):
            """Sum gradients over the sharding groups, where there are several."""
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
            """Hide the gradients that are reduced one by one from upstream; some are in the host."""
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
            return [gradient for gradient in gradients if gradient is not None and host.holds(gradient)]

    return OffloadedStage2


def keep_filled(fill) -> None:
    """Keep a parameter that launch/checkpoint/model_loader.py has just read in the host until it is sharded."""
    host_memory().keep(fill.parameter)


def offloaded_stage3(base: type, host: HostMemory) -> type:
    """Return stage 3 with offloaded parameters. base: GroupShardedStage3, or a rehearsal's subclass."""

    class OffloadedStage3(base):
        def _sync_params_and_buffers(self):
            """Let all ranks begin with the values of the first, as upstream does."""
            for param in self._layer.parameters():
                with host.on_device(write=[param]):
                    dist.broadcast(param, src=self._global_root_rank, group=self._group)
                    if self._dp_group is not None and self._dp_group.nranks > 1:
                        dist.broadcast(param, src=self._dp_group.ranks[0], group=self._dp_group)

        def _segment_rank_params(self, layer, name="last_layer"):
            """Slice the parameters as upstream does. Parameters that it does not slice move to the device."""
            super()._segment_rank_params(layer, name)
            for param in layer.parameters(include_sublayers=False):
                host.take_back(param)

        def _param_storage(self, param, buffer_size):
            host.take_back(param)
            super()._param_storage(param, buffer_size)
            host.keep(param.fw_storage)
            param.host_slice = param.fw_storage.detach()

        def _get_allreduce_fn(self, param):
            reduce = super()._get_allreduce_fn(param)

            @paddle.autograd.no_grad()
            def reduce_and_keep(*_):
                if param.bw_storage is not None:
                    host.take_back(param.bw_storage)
                reduce()
                if param.bw_storage is not None:
                    host.keep(param.bw_storage)
                return_slice(param)

            return reduce_and_keep

        def _clear_gradients(self):
            for param in self._layer.parameters():
                if getattr(param, "bw_storage", None) is not None:
                    host.forget(param.bw_storage)
            super()._clear_gradients()

    return OffloadedStage3


def read_slices_from(host: HostMemory) -> None:
    """Make stage 3 gather slices from the host, and leave them there after a layer has run."""
    gather, release = group_sharded_stage3._all_gather, group_sharded_stage3._release_param

    def gather_from_host(tensor, buffer_size, group):
        return gather(host.copy_of(tensor) if host.holds(tensor) else tensor, buffer_size, group)

    def release_to_host(params, *args, **kwargs):
        release(params, *args, **kwargs)
        for param in params:
            return_slice(param)

    group_sharded_stage3._all_gather = gather_from_host
    group_sharded_stage3._release_param = release_to_host


def return_slice(param) -> None:
    """Use the slice in the host again: upstream has replaced it by a copy on the device."""
    if param.status == "part" and hasattr(param, "host_slice"):
        param.fw_storage = param.host_slice.detach()


class ShardedOffload:
    """Offload in a Trainer's run.

    Attributes:
        host: The tensors in host memory.
    """

    def __init__(self):
        self.host = host_memory()
        self.optimizer = None

    def prepare(self, optimizer) -> None:
        """Take the optimizer before it has states and before anything wraps it."""
        if self.optimizer is None:
            self.optimizer = optimizer
            keep_states(optimizer, self.host)

    @contextmanager
    def sharding(self):
        """Let upstream wrap a model for stage 2 or 3 by the classes above within the block."""
        stages = group_sharded.GroupShardedStage2, group_sharded.GroupShardedStage3
        group_sharded.GroupShardedStage2 = offloaded_stage2(self.host)
        group_sharded.GroupShardedStage3 = offloaded_stage3(stages[1], self.host)
        read_slices_from(self.host)
        try:
            yield
        finally:
            group_sharded.GroupShardedStage2, group_sharded.GroupShardedStage3 = stages

    def finish(self, scaler=None) -> None:
        """Finish once model and optimizer are wrapped.

        Args:
            scaler: The scaler of the loss, None without one.
        """
        assert self.optimizer is not None
        self.optimizer._grad_clip = StreamedClip(self.optimizer._grad_clip, self.host)
        if scaler is not None:
            unscale_on_device(scaler, self.host)
