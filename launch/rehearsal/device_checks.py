"""Upstream's checks for a GPU, passed by a CPU, and its copies to the CPU, which are none on a CPU.

Modules of fleet accept gpu, xpu and whatever paddle.device.get_all_custom_device_type() names, and read a
device's number from "type:number". Where "cpu" is such a type, their own branch for custom devices copies
with Tensor._copy_to(place), which really copies; Tensor.cpu() and Tensor.to("cpu") of a CPU tensor are aliases.
"""

from paddle.amp import grad_scaler
from paddle.base import core
from paddle.distributed import parallel
from paddle.distributed.fleet.meta_parallel.pp_utils import p2p_communication
from paddle.distributed.fleet.meta_parallel.sharding import (
    group_sharded_optimizer_stage2,
    group_sharded_stage3,
    group_sharded_storage,
    group_sharded_utils,
)
from paddle.distributed.fleet.utils import hybrid_parallel_util
from paddle.distributed.sharding import group_sharded

from launch.upstream.module_view import ModuleView


def with_cpu_as_custom_device(paddle) -> ModuleView:
    """The module paddle (or a view of it) as seen by a module that knows custom devices."""
    return ModuleView(
        paddle,
        get_device=lambda: "cpu:0",
        CustomPlace=lambda device_type, device_id: core.CPUPlace(),
        device=ModuleView(paddle.device, get_all_custom_device_type=lambda: ["cpu"]),
    )


def install_fleet() -> None:
    """Checks for a GPU in tensor and pipeline parallelism."""

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


_upstream = grad_scaler._dygraph_tracer


class _CustomPlace:
    def is_custom_place(self) -> bool:
        return True

    def is_gpu_place(self) -> bool:
        return False

    is_xpu_place = is_gpu_place


def install_loss_scaling() -> None:
    """Loss scaling on a CPU.

    Upstream: paddle.amp.GradScaler switches itself off where the device is no GPU, XPU or custom device.
    Without the bridge: --fp16 1 trains on a CPU without a loss scale, and without a word, as the warning is filtered.
    Here: its constructor hears of a custom device. All else is Paddle's own, check_finite_and_unscale's CPU kernel too.
    """
    grad_scaler._dygraph_tracer = lambda: ModuleView(_upstream(), _expected_place=_CustomPlace())


STAGE3_SEGMENT_SIZE = 2**10  # elements: below every matrix of a tiny model, above its norms


def install_sharding() -> None:
    """Sharding stages 1 to 3: checks for a GPU, and copies that are none on a CPU."""
    accept_the_cpu()
    copy_before_clearing()
    set_stage3_segment_size(STAGE3_SEGMENT_SIZE)


def accept_the_cpu() -> None:
    """Let sharding run on a device that is none of those it knows.

    Upstream: group_sharded_parallel asserts a GPU, XPU or custom device, the optimizer of stage 2 and the
    layer of stage 3 assert a build for one, the optimizer reads the number behind the colon of get_device(),
    and the clipping of gradients moves the norm to the device with Tensor.cuda().
    Without the bridge: AssertionError "... only support gpu, xpu and custom_device now", "Only GPU and XPU
    and CustomDevice is supported now", "Only support CUDA / XPU / CustomDevice."; IndexError; ValueError "No
    available device found." from Tensor.cuda().
    Here: the CPU is a custom device. The two assertions about the build hear of a GPU build (nothing else in
    their modules asks for it): a custom device would have to give its alignment, for a GPU build upstream
    looks it up, and its table knows "cpu".
    """
    for module in (group_sharded, group_sharded_utils, group_sharded_optimizer_stage2, group_sharded_stage3):
        module.paddle = with_cpu_as_custom_device(module.paddle)
    for module in (group_sharded_optimizer_stage2, group_sharded_stage3):
        module.core = ModuleView(module.core, is_compiled_with_cuda=lambda: True)


def copy_before_clearing() -> None:
    """Keep the values of tensors that sharding moves to the CPU.

    Upstream: tensors leave the GPU by x.cpu(), then x._clear_data(). On a CPU the former is an alias of x,
    and gone with it. Stage 2 does so with all parameters when it moves them into one buffer, stage 3 with the
    parameters that it gathers for a checkpoint, and with what it offloads.
    Without the bridge: "Tensor not initialized yet" in the constructor of stage 2, "has not been initialized"
    in the get_all_parameters of stage 3.
    Here: stage 2 takes the way that upstream takes when the parameters stay on the CPU (copy, clear nothing),
    stage 3 gets a copy.
    """
    storage = group_sharded_storage.ParamStorage
    upstream = storage.add_rank_params

    def add_rank_params(self, trainable_params, param2align, convert_gpu=True):
        upstream(self, trainable_params, param2align, convert_gpu=False)

    def device2cpu(tensor, convert_dtype=False):
        if convert_dtype:
            tensor = tensor.cast("float32")
        copy = tensor._copy_to(core.CPUPlace(), True)
        tensor._clear_data()
        return copy

    storage.add_rank_params = add_rank_params
    group_sharded_stage3._device2cpu = device2cpu


def set_stage3_segment_size(numel: int) -> None:
    """Slice parameters of more than `numel` elements in stage 3.

    Upstream slices those above 2**20 and has no flag for it: the parameters of a tiny model would stay whole
    on every rank, and a rehearsal of stage 3 would rehearse nothing.
    """

    class FinelySlicedStage3(group_sharded_stage3.GroupShardedStage3):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs | {"segment_size": numel})

    group_sharded.GroupShardedStage3 = FinelySlicedStage3
