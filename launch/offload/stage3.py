"""Stage 3 with the slices of parameters, trained and frozen, and those of their gradients in host memory.

A layer's slices are copied to the device to be gathered. Their host memory keeps its values meanwhile, so that a layer
that is done needs no copy back: the optimizer alone writes there. The model is read into host memory, too, and divided
tensor by tensor: a card has room for its largest tensor, not for the model.
"""

import paddle
import paddle.distributed as dist
from paddle.distributed.fleet.meta_parallel.sharding import group_sharded_stage3

from launch.offload.host import HostMemory, host_memory


def keep_filled(fill) -> None:
    """For launch/checkpoint/read.py: a parameter that has just been read waits in the host until it is divided."""
    host_memory().keep(fill.parameter)


def offloaded_stage3(base: type, host: HostMemory) -> type:
    """base: GroupShardedStage3, or what a rehearsal has made of it."""

    class OffloadedStage3(base):
        def _sync_params_and_buffers(self):
            """Upstream's: all ranks begin with the values of the first."""
            for param in self._layer.parameters():
                with host.on_device(write=[param]):
                    dist.broadcast(param, src=self._global_root_rank, group=self._group)
                    if self._dp_group is not None and self._dp_group.nranks > 1:
                        dist.broadcast(param, src=self._dp_group.ranks[0], group=self._dp_group)

        def _segment_rank_params(self, layer, name="last_layer"):
            """Upstream's, for the whole model; what it leaves whole is on the device from here on."""
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
    """Have stage 3 gather slices that lie in the host, and leave them there when a layer is done."""
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
    """A parameter that has been cut again, by a copy of its slice on the device, has that of the host instead."""
    if param.status == "part" and hasattr(param, "host_slice"):
        param.fw_storage = param.host_slice.detach()
