"""Loss scaling on a CPU.

Upstream: paddle.amp.GradScaler switches itself off where the device is no GPU, XPU or custom device.
Without the bridge: --fp16 1 trains on a CPU without a loss scale, and without a word, as the warning is filtered.
Here: its constructor hears of a custom device. All else is Paddle's own, check_finite_and_unscale's CPU kernel too.
"""

from paddle.amp import grad_scaler

from launch.upstream.module_view import ModuleView

_upstream = grad_scaler._dygraph_tracer


class _CustomPlace:
    def is_custom_place(self) -> bool:
        return True

    def is_gpu_place(self) -> bool:
        return False

    is_xpu_place = is_gpu_place


def install() -> None:
    grad_scaler._dygraph_tracer = lambda: ModuleView(_upstream(), _expected_place=_CustomPlace())
