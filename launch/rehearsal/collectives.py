"""Train in every parallel layout on CPU processes of one host, over gloo.

    from launch.rehearsal import collectives
    collectives.install()       # before TrainingArguments are parsed: parsing them makes the process groups

Paddle's CPU build has gloo process groups, but its hybrid parallelism was written for NCCL. What lies between
the two is bridged here and in process_group.py (where groups meet, collectives that gloo lacks, sends between pipeline
stages). Every bridge says what upstream does, what happens without the bridge, and what is done instead.

Written against paddlepaddle 3.3.1 and paddlenlp 3.0.0b4; tests/rehearsal fails where an upgrade makes a
bridge unnecessary or wrong. Every collective is synchronous, nothing overlaps: results are those of a GPU run
in float32, times are not. Not bridged, and an error upstream: all-to-all (mixture of experts), ReduceOp.AVG.
Not seen by the refusal of float16 sums: the gradients of paddle.DataParallel, which calls gloo from C++.

Modules of fleet accept gpu, xpu and whatever paddle.device.get_all_custom_device_type() names, and read a
device's number from "type:number". Where "cpu" is such a type, their own branch for custom devices copies
with Tensor._copy_to(place), which really copies; Tensor.cpu() and Tensor.to("cpu") of a CPU tensor are aliases.
"""

# pyright: reportAttributeAccessIssue=false
# Bridges replace methods of upstream's classes and names of its modules.

import paddle
from paddle.amp import grad_scaler
from paddle.autograd import PyLayer
from paddle.base import core
from paddle.distributed import parallel
from paddle.distributed.collective import _get_group_map
from paddle.distributed.fleet.layers.mpu import mp_layers, mp_ops
from paddle.distributed.fleet.meta_parallel.pp_utils import p2p_communication
from paddle.distributed.fleet.meta_parallel.sharding import (
    group_sharded_optimizer_stage2,
    group_sharded_stage3,
    group_sharded_storage,
    group_sharded_utils,
)
from paddle.distributed.fleet.utils import hybrid_parallel_util
from paddle.distributed.sharding import group_sharded

from launch.errors import UserError
from launch.rehearsal import process_group
from launch.upstream.module_view import ModuleView


class Concat(PyLayer):
    """Gather the last axis of all ranks; the gradient is this rank's slice of it."""

    @staticmethod
    def forward(ctx, x, group):
        """Gather the parts of all ranks along the last axis."""
        ctx.group = group
        parts = []
        paddle.distributed.all_gather(parts, x.contiguous(), group=group)
        return paddle.concat(parts, axis=-1)

    @staticmethod
    def backward(ctx, gradient):
        """Return this rank's part of the gradient."""
        return paddle.split(gradient, ctx.group.nranks, axis=-1)[ctx.group.rank].clone()


class ParallelCrossEntropy(PyLayer):
    """Cross entropy of logits whose last axis, the vocabulary, is split over the ranks.

    logits [..., vocabulary / ranks], label [..., 1] with ids of the whole vocabulary;
    gives softmax [..., vocabulary / ranks] and loss [..., 1], which is 0 where label is ignore_index.
    """

    @staticmethod
    def forward(ctx, logits, label, ignore_index, group):
        """Compute the entropy of this rank's part of the vocabulary."""
        x = logits.astype("float32")
        largest = x.max(axis=-1, keepdim=True)
        paddle.distributed.all_reduce(largest, op=paddle.distributed.ReduceOp.MAX, group=group)
        x = x - largest
        exponentials = paddle.exp(x)
        total = exponentials.sum(axis=-1, keepdim=True)
        paddle.distributed.all_reduce(total, group=group)

        size = x.shape[-1]
        local_label = label - group.rank * size
        is_here = (local_label >= 0) & (local_label < size)
        local_label = paddle.where(is_here, local_label, paddle.zeros_like(local_label))
        is_here = is_here.astype("float32")
        target = paddle.take_along_axis(x, local_label, axis=-1) * is_here
        paddle.distributed.all_reduce(target, group=group)

        is_counted = (label != ignore_index).astype("float32")
        softmax = exponentials / total
        ctx.save_for_backward(softmax, local_label, is_here, is_counted)
        ctx.dtype = logits.dtype
        return softmax.astype(logits.dtype), (paddle.log(total) - target) * is_counted

    @staticmethod
    def backward(ctx, _softmax_gradient, loss_gradient):
        """Return the gradient of the logits."""
        softmax, local_label, is_here, is_counted = ctx.saved_tensor()
        target = paddle.nn.functional.one_hot(local_label.squeeze(-1), softmax.shape[-1]) * is_here
        gradient = (softmax - target) * (loss_gradient.astype("float32") * is_counted)
        return gradient.astype(ctx.dtype), None


def _c_identity(x, ring_id, *flags):
    return paddle.assign(x)


def _c_split(x, rank, nranks, ring_id, *flags):
    return paddle.split(x, nranks, axis=-1)[rank].clone()


def _c_concat(x, rank, nranks, ring_id, *flags):
    return Concat.apply(x, _get_group_map()[ring_id])


def _c_softmax_with_cross_entropy(logits, label, ignore_index, ring_id, rank, nranks):
    return ParallelCrossEntropy.apply(logits, label, ignore_index, _get_group_map()[ring_id])


def install_tensor_parallel_operators() -> None:
    """Install operators of tensor parallelism that have no CPU kernel.

    Upstream: the layers of paddle.distributed.fleet.layers.mpu call c_identity, c_split, c_concat and
    c_softmax_with_cross_entropy, and c_identity by its old name where an all-reduce is to overlap with a product.
    (c_embedding has a CPU kernel.)
    Without the bridge: RuntimeError "Do not support c_identity for cpu kernel now", and so on.
    Here: the same out of ordinary operators and collectives, for the modules that call them. The gradients of
    c_identity and c_split are upstream's: their callers bring them along. (That of c_split gathers along the
    first axis although the last one was split, on GPUs, too: with more than one axis its shape is wrong. Our
    models do not use it.)
    """
    mp_ops._C_ops = ModuleView(
        mp_ops._C_ops,
        c_identity=_c_identity,
        c_split=_c_split,
        c_concat=_c_concat,
        c_softmax_with_cross_entropy=_c_softmax_with_cross_entropy,
    )
    old_names = ModuleView(mp_layers.paddle._legacy_C_ops, c_identity=lambda x, *attributes: paddle.assign(x))
    mp_layers.paddle = ModuleView(mp_layers.paddle, _legacy_C_ops=old_names)


def with_cpu_as_custom_device(paddle) -> ModuleView:
    """Return the module paddle (or a view of it) as seen by a module that knows custom devices."""
    return ModuleView(
        paddle,
        get_device=lambda: "cpu:0",
        CustomPlace=lambda device_type, device_id: core.CPUPlace(),
        device=ModuleView(paddle.device, get_all_custom_device_type=lambda: ["cpu"]),
    )


def install_fleet() -> None:
    """Let tensor and pipeline parallelism pass their checks for a GPU."""
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
    """Let losses be scaled on a CPU.

    Upstream: paddle.amp.GradScaler switches itself off where the device is no GPU, XPU or custom device.
    Without the bridge: --fp16 1 trains on a CPU without a loss scale, and without a word, as the warning is filtered.
    Here: its constructor hears of a custom device. All else is Paddle's own, check_finite_and_unscale's CPU kernel too.
    """
    grad_scaler._dygraph_tracer = lambda: ModuleView(_upstream(), _expected_place=_CustomPlace())


STAGE3_SEGMENT_SIZE = 2**10  # elements: below every matrix of a tiny model, above its norms


def install_sharding() -> None:
    """Let sharding stages 1 to 3 pass their checks for a GPU, and copy where a CPU would not."""
    accept_the_cpu()
    copy_before_clearing()
    set_stage3_segment_size(STAGE3_SEGMENT_SIZE)


def accept_the_cpu() -> None:
    """Let sharding run on a device that it does not know.

    Upstream: group_sharded_parallel asserts a GPU, XPU or custom device, the optimizer of stage 2 and the
    layer of stage 3 assert a build for one, the optimizer reads the number behind the colon of get_device(),
    and the clipping of gradients moves the norm to the device with Tensor.cuda().
    Without the bridge: AssertionError "... only support gpu, xpu and custom_device now", "Only GPU and XPU
    and CustomDevice is supported now", "Only support CUDA / XPU / CustomDevice."; IndexError; ValueError "No
    available device found." from Tensor.cuda().
    Here: the CPU is a custom device. The two assertions about the build see a GPU build (nothing else in
    their modules looks at it): a custom device would have to give its alignment, for a GPU build upstream
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

    Upstream slices parameters above 2**20 and has no flag for it: the parameters of a tiny model would stay whole on
    every rank, and a rehearsal of stage 3 would rehearse nothing.
    """

    class FinelySlicedStage3(group_sharded_stage3.GroupShardedStage3):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs | {"segment_size": numel})

    group_sharded.GroupShardedStage3 = FinelySlicedStage3


_BRIDGES = (
    process_group.install_rendezvous,
    process_group.install_shared_memory,
    process_group.install_collectives,
    process_group.install_point_to_point,
    install_tensor_parallel_operators,
    install_fleet,
    install_sharding,
)
_installed = False


def install() -> None:
    """Bridge all gaps in this process; a second call does nothing.

    Raises:
        UserError: On a GPU or XPU build of Paddle.
        RuntimeError: If process groups exist already.
    """
    global _installed
    if _installed:
        return
    if core.is_compiled_with_cuda() or core.is_compiled_with_xpu():
        raise UserError(
            "device: cpu with several processes is a rehearsal, which needs the CPU build of Paddle; "
            "this is a build for cards. Train on them (--device gpu), or rehearse in an environment with "
            "paddlepaddle instead of paddlepaddle-gpu (make setup)"
        )
    if paddle.distributed.is_initialized():
        raise RuntimeError("collectives.install() must come before TrainingArguments: process groups exist already")
    for bridge in _BRIDGES:
        bridge()
    _installed = True
