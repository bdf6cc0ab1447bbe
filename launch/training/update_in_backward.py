"""`--update_in_backward 1`: each parameter is updated as soon as its gradient is there, and the gradient let go.

One gradient is alive at a time, so a step is one micro batch on one process. The gradient of an output layer whose loss
is computed in chunks is there only some rows at a time (launch/training/chunked_loss.py).

The norm of all gradients is known when the last of them has been used. They are clipped by the norm of the step before,
or by that of this step's gradients so far where it is larger: a step whose gradients grow is clipped, too, and no
gradient passes that exceeds --max_grad_norm. A second backward pass, which clipping by the step's own norm would take,
is not made.
"""

from functools import partial

import paddle
from paddle.nn import clip

from launch.training.chunked_loss import chunked_head
from launch.training.eight_bit_moments import AdamW8Bit
from launch.training.optimizer import ClipByGlobalNorm, clip_factor, clipped


class ClipByPastNorm(ClipByGlobalNorm):
    """Clipping of gradients that come one after the other; no gradient at all ends a step."""

    _squares: paddle.Tensor | None = None

    @paddle.no_grad()
    def _dygraph_clip(self, params_grads: list) -> list:
        if not params_grads and self._squares is not None:
            self.grad_norm.latest, self._squares = paddle.sqrt(self._squares), None
        for _, gradient in clipped(params_grads):
            square = clip._squared_l2_norm(gradient).reshape([])
            self._squares = square if self._squares is None else self._squares + square
            norm = paddle.sqrt(self._squares)
            if self.grad_norm.latest is not None:
                norm = paddle.maximum(norm, self.grad_norm.latest)
            gradient.multiply_(clip_factor(norm, self.clip_norm).astype(gradient.dtype))
        return params_grads


def update_in_backward(model, optimizer) -> None:
    """Have an optimizer make its step within the backward pass. Its states are created at once.

    optimizer: paddle's own, which updates parameter by parameter.
    """
    block = paddle.base.framework.default_main_program().global_block()
    trained = {parameter.name: parameter for parameter in model.parameters() if not parameter.stop_gradient}
    for parameter in trained.values():
        optimizer._create_accumulators(block, [parameter])
        parameter._register_backward_hook(partial(_update, optimizer, parameter))
    head = chunked_head(model)
    if head is not None and isinstance(optimizer, AdamW8Bit):
        head.update = partial(_update_part, optimizer)


def _update(optimizer, parameter, *_) -> None:
    """Update a parameter by its gradient, once that is whole."""
    _step(optimizer, parameter, parameter.grad)
    parameter.clear_gradient(False)


def _update_part(optimizer: AdamW8Bit, parameter, first: int, gradient) -> None:
    """Update the elements of a parameter from `first` on; the parts come in their order."""
    optimizer.first_element = first
    _step(optimizer, parameter, gradient)
    optimizer.first_element = 0


def _step(optimizer, parameter, gradient) -> None:
    with paddle.no_grad(), paddle.amp.auto_cast(False):
        optimizer._apply_optimize(None, None, [(parameter, gradient)])
