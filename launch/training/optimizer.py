"""Around the optimizer's step: the norm of the gradients, clipping, and the loss scale of float16."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import MethodType

import numpy as np
import paddle
from paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.hybrid_parallel_optimizer import HybridParallelClipGrad
from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_utils import GroupShardedClipGrad
from paddle.nn import clip
from paddlenlp.trainer import TrainerCallback

# ---- the gradient norm


NO_CLIPPING = float(np.finfo("float32").max)


class GradNorm:
    """The global gradient norm of each step, before clipping, for every layout. Reading `value` waits for the device.

    Paddle computes the norm inside three clipping classes (one process and data parallel; hybrid parallel; sharding
    stages 2 and 3) and throws it away. Computing it again would cost a second pass over all gradients and an
    all-reduce, so the clipping classes below, which take their places, keep it in `latest`.
    """

    def __init__(self):
        self.latest: paddle.Tensor | None = None

    @property
    def value(self) -> float:
        """The norm of the latest step that was taken; NaN before the first, as while a loss scale is being found."""
        return math.nan if self.latest is None else float(self.latest)


class ClipByGlobalNorm(paddle.nn.ClipGradByGlobalNorm):
    """Clipping for --max_grad_norm on one process and in data parallelism: upstream's, for dense gradients.

    max_grad_norm 0 means no clipping: the norm is still computed, and gradients are multiplied by exactly 1.

    This class and ShardedClip replace a whole method of upstream's, which does not hand out the norm. The order of sums
    and products is upstream's, so that results are equal to the bit. Each reads the pairs exactly twice, the second
    time to write: offload streams the gradients to the device (launch/offload/streamed_optimizer.py).
    """

    def __init__(self, max_grad_norm: float, grad_norm: GradNorm):
        super().__init__(max_grad_norm if max_grad_norm > 0 else NO_CLIPPING)
        self.grad_norm = grad_norm

    @paddle.no_grad()
    def _dygraph_clip(self, params_grads: list) -> list:
        squares = [clip._squared_l2_norm(gradient) for _, gradient in clipped(params_grads)]
        if not squares:
            return params_grads
        self.grad_norm.latest = paddle.sqrt(paddle.stack(squares).sum())
        factor = clip_factor(self.grad_norm.latest, self.clip_norm)
        for _, gradient in clipped(params_grads):
            gradient.multiply_(factor if gradient.dtype == factor.dtype else factor.astype(gradient.dtype))
        return params_grads


class HybridClip(HybridParallelClipGrad):
    """Upstream's clipping of hybrid parallelism, which keeps the norm."""

    def __init__(self, upstream: HybridParallelClipGrad, grad_norm: GradNorm):
        super().__init__(upstream._clip, upstream._hcg, upstream.split_norm_comm, upstream._timers)
        self.grad_norm = grad_norm

    def _global_norm(self, squares_of_partitions, squares_of_whole):
        """Keep the norm. Upstream sums both over the ranks, in place, and then takes the square root of their sum."""
        super()._global_norm(squares_of_partitions, squares_of_whole)
        self.grad_norm.latest = paddle.sqrt(squares_of_partitions + squares_of_whole)


class ShardedClip(GroupShardedClipGrad):
    """Clipping in sharding stages 2 and 3: upstream's, for dense gradients on the device that trains."""

    def __init__(self, upstream: GroupShardedClipGrad, grad_norm: GradNorm):
        super().__init__(upstream._clip, upstream._device, upstream._group)
        self.grad_norm = grad_norm

    @paddle.no_grad()
    def _dygraph_clip(self, params_grads: list) -> list:
        shards, whole = {}, {}  # dtype of the parameters -> squared norms
        for parameter, gradient in clipped(params_grads):
            squares = whole if hasattr(parameter, "unslice") else shards  # stage 3 does not shard small parameters
            squares.setdefault(parameter.dtype, []).append(clip._squared_l2_norm(gradient))
        total = _sum(shards)
        paddle.distributed.all_reduce(total, group=self._group)
        self.grad_norm.latest = paddle.sqrt(total + _sum(whole))
        factor = clip_factor(self.grad_norm.latest, self.clip_norm)
        for _, gradient in clipped(params_grads):
            gradient.multiply_(factor.astype(gradient.dtype))  # scale_ would read the factor back for each gradient
        return params_grads


def keep_norm(optimizer, grad_norm: GradNorm) -> None:
    """Have an optimizer whose clip a layout has replaced by its own keep the norm.

    optimizer: the innermost, without the wrappers of fleet and sharding.
    """
    if isinstance(optimizer._grad_clip, HybridParallelClipGrad):
        optimizer._grad_clip = HybridClip(optimizer._grad_clip, grad_norm)
    elif isinstance(optimizer._grad_clip, GroupShardedClipGrad):
        optimizer._grad_clip = ShardedClip(optimizer._grad_clip, grad_norm)


def clipped(params_grads: list) -> Iterator[tuple]:
    """Yield the (parameter, gradient) pairs that take part in clipping."""
    for parameter, gradient in params_grads:
        if gradient is not None and getattr(parameter, "need_clip", True):
            yield parameter, gradient


def clip_factor(norm: paddle.Tensor, limit: float) -> paddle.Tensor:
    """Return the factor of gradients: 1 up to the limit."""
    bound = paddle.full([], limit, dtype=norm.dtype)
    return paddle.divide(bound, paddle.maximum(norm, bound))


def _sum(squares: dict) -> paddle.Tensor:
    """Return a float32 tensor of one element. Upstream adds up each dtype first, then these sums in this order."""
    total = paddle.zeros([1], dtype="float32")
    for dtype in (paddle.float16, paddle.float32, paddle.bfloat16):
        if dtype in squares:
            total = total + paddle.add_n(squares[dtype]).astype("float32")
    return total


# ---- the loss scale of a float16 run: Paddle's GradScaler, moved by the rule of DeepSpeed and Megatron-LM
#
# The loss is multiplied by a scale, so that small gradients do not become 0 in float16. Where a gradient of any rank is
# no number, all ranks skip the update: the step has read its samples and counts in global_step, weights and optimizer
# stay, and the learning rate's schedule does not advance.


FACTOR = 2.0  # that a scale moves by: a power of two changes no digit of a gradient


@dataclass(frozen=True)
class ScaleRule:
    """The rule by which the loss scale moves with each step.

    It is DeepSpeed's DynamicLossScaler, runtime/fp16/loss_scaler.py, with consecutive_hysteresis off; DynamicGradScaler
    in megatron/core/optimizer/grad_scaler.py is the same.

    Attributes:
        window: Steps without an overflow until the scale doubles.
        hysteresis: Overflows since it last doubled, from which on each halves it.
        minimum: Below which it never falls.
    """

    window: int
    hysteresis: int
    minimum: float

    def next(self, scale: float, steps: int, overflows: int, overflow: bool) -> tuple[float, int, int]:
        """Return (scale, steps, overflows) after a step.

        Args:
            scale: Before the step.
            steps: Without an overflow, since the last overflow or doubling.
            overflows: Since the last doubling.
            overflow: Whether this step has one.
        """
        if overflow:
            overflows += 1
            return (max(scale / FACTOR, self.minimum) if overflows >= self.hysteresis else scale), 0, overflows
        if steps + 1 == self.window:
            return scale * FACTOR, 0, 0
        return scale, steps + 1, overflows


def follow(scaler, rule: ScaleRule) -> None:
    """Let a GradScaler move by the rule.

    Upstream's own halves after several overflows in a row, forgets them with the first step between, knows no minimum,
    and prints on every rank. Its state keeps its names: a checkpoint has it.
    """

    def _update(self):
        before = float(self._scale)
        scale, steps, overflows = rule.next(before, self._incr_count, self._decr_count, bool(self._cache_found_inf))
        if scale != before:
            self._scale = paddle.full_like(self._scale, scale)
        self._incr_count, self._decr_count = steps, overflows

    scaler._update = MethodType(_update, scaler)


class SkippedSteps(TrainerCallback):
    """Prints each skipped step on rank 0, and counts them for the log."""

    def __init__(self):
        self._counted = 0
        self._scale = 0.0  # that of the step that is being made

    def on_optimizer_begin(self, args, state, control, *, scaler, **kwargs):
        """Note the scale before the first step. Reading waits for the device, so later steps know it from the last."""
        self._scale = self._scale or float(scaler._scale)

    def on_optimizer_end(self, args, state, control, *, scaler, **kwargs):
        """Report a skipped step."""
        before, self._scale = self._scale, float(scaler._scale)
        if not scaler._cache_found_inf:
            return
        self._counted += 1
        moved = f"{before:g} -> {self._scale:g}" if self._scale != before else f"stays {before:g}"
        if args.process_index == 0:
            print(f"step {state.global_step + 1}: gradients overflow, update skipped; loss scale {moved}", flush=True)

    def record(self) -> dict:
        """Return the scale of the next step, and the steps skipped since the last record, for train_log.jsonl."""
        skipped, self._counted = self._counted, 0
        return {"loss_scale": self._scale, "skipped_steps": skipped}
