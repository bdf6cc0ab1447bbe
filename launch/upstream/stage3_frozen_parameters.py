"""Sharding stage 3 puts frozen parameters together in the first backward pass, and leaves them whole from then on.

Upstream: before the backward pass of a layer all of its parameters are gathered (ForwardPostHooks.backward in
paddle/distributed/fleet/meta_parallel/sharding/group_sharded_stage3.py). Those that are trained are cut again when
their gradient is there (_get_allreduce_fn); nothing cuts a frozen one, and the next forward pass, which counts its
users, finds one too many. Frozen parameters of layers that have no backward pass are gathered ahead for it, too.
Without the correction: with adapters, each rank has the whole base model after one step, as if there were no stage 3.
Here: a layer's frozen parameters are gathered for backward where a gradient passes through them, which is where an
input of the layer wants one, and cut when the gradients of its inputs are there: nothing reads them any more.
"""

from collections import defaultdict

import paddle
from paddle.distributed.fleet.meta_parallel.sharding import group_sharded_stage3
from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_stage3 import ForwardPostHooks, GroupShardedStage3

_upstream = GroupShardedStage3._register_forward_all_hooks


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    GroupShardedStage3._register_forward_all_hooks = _register_forward_all_hooks
    group_sharded_stage3.ForwardPostHooks = _PostHooks


def _register_forward_all_hooks(self, sub_layer, task_flow) -> None:
    _upstream(self, sub_layer, task_flow)
    if not hasattr(task_flow, "needed"):
        task_flow.needed = defaultdict(list)  # id of a layer -> its parameters that backward will read or update

    def before_forward(layer, inputs):
        if not paddle.is_grad_enabled():
            return
        sliced = self._trainable_params[id(layer)]  # upstream's name; frozen ones are among them
        frozen = [param for param in sliced if not param.trainable]
        tensors = [value for value in inputs if isinstance(value, paddle.Tensor)]
        differentiable = [tensor for tensor in tensors if not tensor.stop_gradient]
        passed = bool(differentiable) or not tensors  # inputs by name are not seen: they may need gradients
        task_flow.needed[id(layer)] = sliced if passed else [param for param in sliced if param.trainable]
        if frozen and differentiable:
            release = _Countdown(len(differentiable), lambda: _release(self, layer, frozen))
            for tensor in differentiable:
                tensor.register_hook(release)

    sub_layer.register_forward_pre_hook(before_forward)


class _Countdown:
    """A gradient hook that acts when it is called for the last time."""

    def __init__(self, calls: int, act):
        self.calls, self.act = calls, act

    def __call__(self, gradient) -> None:
        self.calls -= 1
        if self.calls == 0:
            self.act()


def _release(stage3: GroupShardedStage3, layer, frozen: list) -> None:
    """Cut again what the layer's backward pass has read; nothing is gathered ahead for that any more."""
    task_flow = stage3._task_flow
    task_flow.needed[id(layer)] = []  # pyright: ignore[reportAttributeAccessIssue]
    for param in frozen:
        param.use_count = 1  # upstream counts up, too, where a layer was to be gathered ahead that is there already
    with paddle.no_grad():
        group_sharded_stage3._release_param(frozen, stage3._param2buffer, stage3._rank, task_flow, stage3._offload)


class _PostHooks(ForwardPostHooks):
    """Upstream's, whose backward pass gathers for a layer, and for the one before it, what these need."""

    @staticmethod
    def forward(ctx, *inputs, task_flow, **kwargs):
        outputs = ForwardPostHooks.forward(ctx, *inputs, task_flow=task_flow, **kwargs)
        ctx.trainable_params = task_flow.needed
        return outputs
