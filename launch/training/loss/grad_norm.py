"""The global gradient norm of each step, before clipping, for every layout.

Paddle computes it inside three clipping classes (one process and data parallel; hybrid parallel; sharding stage 2
and 3) and throws it away. Computing it again would cost a second pass over all gradients and an all-reduce, so we
record it where it is made: each of the three takes exactly one square root, that of the squared global norm.
"""

import importlib
import math

import numpy as np
import paddle

from launch.upstream.module_view import ModuleView

CLIPPING_MODULES = [
    "paddle.nn.clip",
    "paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.hybrid_parallel_optimizer",
    "paddle.distributed.fleet.meta_parallel.sharding.group_sharded_utils",
]
NO_CLIPPING = float(np.finfo("float32").max)


class GradNorm:
    """Records the latest norm as a tensor; reading `value` is what waits for the device."""

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
