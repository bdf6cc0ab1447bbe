"""Offload in a Trainer's run."""

from contextlib import contextmanager

from paddle.distributed.sharding import group_sharded

from launch.offload.host import host_memory
from launch.offload.optimizer import StreamedClip, keep_states, unscale_on_device
from launch.offload.stage2 import offloaded_stage2
from launch.offload.stage3 import offloaded_stage3, read_slices_from


class Offload:
    """host: what has been moved there."""

    def __init__(self):
        self.host = host_memory()
        self.optimizer = None

    def prepare(self, optimizer) -> None:
        """For an optimizer without states, which nothing wraps yet."""
        if self.optimizer is None:
            self.optimizer = optimizer
            keep_states(optimizer, self.host)

    @contextmanager
    def sharding(self):
        """What upstream wraps for stage 2 or 3 in here is offloaded."""
        stages = group_sharded.GroupShardedStage2, group_sharded.GroupShardedStage3
        group_sharded.GroupShardedStage2 = offloaded_stage2(self.host)
        group_sharded.GroupShardedStage3 = offloaded_stage3(stages[1], self.host)
        read_slices_from(self.host)
        try:
            yield
        finally:
            group_sharded.GroupShardedStage2, group_sharded.GroupShardedStage3 = stages

    def finish(self, scaler=None) -> None:
        """When model and optimizer are wrapped. scaler: of the loss, None without one."""
        self.optimizer._grad_clip = StreamedClip(self.optimizer._grad_clip, self.host)
        if scaler is not None:
            unscale_on_device(scaler, self.host)
