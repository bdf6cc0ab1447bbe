"""RMSNorm as one operator of Paddle, under the name that paddlenlp's --use_fused_rms_norm imports.

    y = fused_ln.fused_rms_norm(x, weight, epsilon)[0]

build.json beside this file says what it was built for.
"""

import importlib.util

import paddle
from paddle.base import core

library = importlib.util.find_spec("fused_ln._ops")
if library is None or library.origin is None:
    raise ImportError("fused_ln._ops is missing: make custom-ops builds it")
core.load_op_meta_info_and_register_op(library.origin)

HALVES = (paddle.float16, paddle.bfloat16)


def fused_rms_norm(x, weight, epsilon=1e-6):
    """Return y = x / sqrt(mean(x^2) + epsilon) * weight over the last axis, and 1 / sqrt(mean(x^2) + epsilon).

    x [..., h], weight [h]: both float32, both float16 or both bfloat16, or float32 weights with x in half precision.
    Returns y [..., h] in the weight's dtype, differentiable, and [...] in float32, a constant to gradients.

    Raises:
        ValueError: For other shapes and dtypes.
    """
    if len(weight.shape) != 1 or not x.shape or x.shape[-1] != weight.shape[0]:
        raise ValueError(
            f"fused_rms_norm: x has shape {list(x.shape)}, weight {list(weight.shape)}; wanted: [..., h] and [h]"
        )
    if weight.dtype not in (x.dtype, paddle.float32) or x.dtype not in (paddle.float32, *HALVES):
        raise ValueError(
            f"fused_rms_norm: x is {x.dtype}, weight {weight.dtype}; wanted: float32, float16 or bfloat16, and the "
            "weight alike or float32"
        )
    run = paddle._C_ops._run_custom_op  # pyright: ignore[reportAttributeAccessIssue]  # made at import, in no stub
    y, inverse_rms = run("fused_rms_norm", x, weight, float(epsilon))
    inverse_rms.stop_gradient = True
    return y, inverse_rms
