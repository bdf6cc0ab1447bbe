"""Around the optimizer's step: the norm of the gradients, clipping, and the loss scale of float16."""

import importlib
import math
from dataclasses import dataclass
from types import MethodType

import numpy as np
import paddle
from paddlenlp.trainer import TrainerCallback

from launch.upstream.module_view import ModuleView

# ---- the gradient norm


CLIPPING_MODULES = [
    "paddle.nn.clip",
    "paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.hybrid_parallel_optimizer",
    "paddle.distributed.fleet.meta_parallel.sharding.group_sharded_utils",
]
NO_CLIPPING = float(np.finfo("float32").max)


class GradNorm:
    """The global gradient norm of each step, before clipping, for every layout, as a tensor; reading `value` is what
    waits for the device.

    Paddle computes it inside three clipping classes (one process and data parallel; hybrid parallel; sharding stage 2
    and 3) and throws it away. Computing it again would cost a second pass over all gradients and an all-reduce, so we
    record it where it is made: each of the three takes exactly one square root, that of the squared global norm.
    """

    def __init__(self):
        self._latest = None

    def record(self) -> None:
        """Start recording in this process."""
        for name in CLIPPING_MODULES:
            module = importlib.import_module(name)
            module.paddle = ModuleView(module.paddle, sqrt=self._sqrt)

    def _sqrt(self, x, name=None):
        self._latest = paddle.sqrt(x, name=name)
        return self._latest

    @property
    def value(self) -> float:
        """The norm of the latest step that was taken; NaN before the first, as while a loss scale is being found."""
        return math.nan if self._latest is None else float(self._latest)


def clip_by_global_norm(max_grad_norm: float) -> paddle.nn.ClipGradByGlobalNorm:
    """Clipping for --max_grad_norm; 0 means none: the norm is still formed, gradients are multiplied by exactly 1."""
    return paddle.nn.ClipGradByGlobalNorm(max_grad_norm if max_grad_norm > 0 else NO_CLIPPING)


# ---- the loss scale of a float16 run: Paddle's GradScaler, moved by the rule of DeepSpeed and Megatron-LM
#
# The loss is multiplied by a scale, so that small gradients do not become 0 in float16. Where a gradient of any rank is
# no number, all ranks skip the update: the step has read its samples and counts in global_step, weights and optimizer
# stay, and the learning rate's schedule does not advance.


FACTOR = 2.0  # that a scale moves by: a power of two changes no digit of a gradient


@dataclass(frozen=True)
class ScaleRule:
    """How the scale moves with each step (DeepSpeed's DynamicLossScaler, runtime/fp16/loss_scaler.py, with
    consecutive_hysteresis off; DynamicGradScaler in megatron/core/optimizer/grad_scaler.py is the same).

    window: steps without an overflow until the scale doubles. hysteresis: overflows since it last doubled, from which
    on each halves it. minimum: below which it never falls.
    """

    window: int
    hysteresis: int
    minimum: float

    def next(self, scale: float, steps: int, overflows: int, overflow: bool) -> tuple[float, int, int]:
        """(scale, steps, overflows) after a step. steps: without an overflow, since the last overflow or doubling;
        overflows: since the last doubling."""
        if overflow:
            overflows += 1
            return (max(scale / FACTOR, self.minimum) if overflows >= self.hysteresis else scale), 0, overflows
        if steps + 1 == self.window:
            return scale * FACTOR, 0, 0
        return scale, steps + 1, overflows


def follow(scaler, rule: ScaleRule) -> None:
    """Have a GradScaler move by the rule. Upstream's own halves after so many overflows in a row, forgets them with the
    first step between, knows no minimum, and prints on every rank. Its state keeps its names: a checkpoint has it."""

    def _update(self):
        scale, steps, overflows = rule.next(
            float(self._scale), self._incr_count, self._decr_count, bool(self._cache_found_inf)
        )
        if scale != float(self._scale):
            self._scale = paddle.full_like(self._scale, scale)
        self._incr_count, self._decr_count = steps, overflows

    scaler._update = MethodType(_update, scaler)


class SkippedSteps(TrainerCallback):
    """Tells each skipped step on rank 0, and counts them for the log."""

    def __init__(self):
        self._counted = 0
        self._scale = 0.0  # that of the step that is being made

    def on_optimizer_begin(self, args, state, control, scaler=None, **kwargs):
        self._scale = float(scaler._scale)

    def on_optimizer_end(self, args, state, control, scaler=None, **kwargs):
        before, self._scale = self._scale, float(scaler._scale)
        if not scaler._cache_found_inf:
            return
        self._counted += 1
        moved = f"{before:g} -> {self._scale:g}" if self._scale != before else f"stays {before:g}"
        if args.process_index == 0:
            print(f"step {state.global_step + 1}: gradients overflow, update skipped; loss scale {moved}", flush=True)

    def record(self) -> dict:
        """For train_log.jsonl: the scale of the next step, and how many steps were skipped since the last record."""
        skipped, self._counted = self._counted, 0
        return {"loss_scale": self._scale, "skipped_steps": skipped}
