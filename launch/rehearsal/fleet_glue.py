"""Checks for a GPU in tensor and pipeline parallelism."""

from paddle.distributed import parallel
from paddle.distributed.fleet.meta_parallel.pp_utils import p2p_communication
from paddle.distributed.fleet.utils import hybrid_parallel_util

from launch.rehearsal.custom_device import with_cpu_as_custom_device


def install() -> None:
    # Upstream sets a rank's device number only where it was built for a GPU, an XPU or a custom device.
    # Without: PipelineLayer's constructor raises AttributeError '_device_id'. Here: 0, as there is one CPU.
    parallel.ParallelEnv._device_id = 0

    # Upstream's broadcast of the inputs inside a tensor parallel group asserts a GPU, XPU or custom device.
    # Without: AssertionError "Only support xpu, gpu and custom_device now". Here: the CPU is a custom device.
    hybrid_parallel_util.paddle = with_cpu_as_custom_device(hybrid_parallel_util.paddle)

    # Upstream lets both neighbours send before they receive. gloo's send waits for the receiver.
    # Without: the pipeline hangs once two stages send to each other. Here: the order that upstream keeps for
    # other devices of that kind (its environment variable PADDLE_P2P_SYNC_SEND is read too early for us).
    p2p_communication._sync_send = True
