"""--amp_master_grad 1 with --fp16 1: on one process and under data parallel gradients keep the loss scale.

Upstream: GradScaler._unscale (paddle/amp/grad_scaler.py) divides `param.grad` by the scale and looks for infinity
there. With amp_master_grad the gradients are `param.main_grad`, which it does not know; the scalers of the other
layouts, which do, are not used here (Trainer._wrap_amp_model in paddlenlp/trainer/trainer.py).
Without the correction: |g| is the scale times too large, each step is clipped to --max_grad_norm, and no step is
skipped: one infinite gradient makes all weights NaN.
Here: it divides and looks at these.
"""

import paddle
from paddle import _legacy_C_ops
from paddle.amp.grad_scaler import AmpScaler, OptimizerState

_upstream = AmpScaler._unscale


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    AmpScaler._unscale = _unscale


def _unscale(self, optimizer) -> None:
    gradients = [getattr(parameter, "main_grad", None) for parameter in optimizer._parameter_list]
    gradients = [gradient for gradient in gradients if gradient is not None]
    if not (self._enable and gradients):
        return _upstream(self, optimizer)
    self._found_inf = paddle.zeros([1], "bool")
    unscale = _legacy_C_ops.check_finite_and_unscale  # pyright: ignore[reportAttributeAccessIssue]
    unscale(gradients, self._scale, gradients, self._found_inf)
    self._optimizer_states[id(optimizer)]["state"] = OptimizerState.UNSCALED
