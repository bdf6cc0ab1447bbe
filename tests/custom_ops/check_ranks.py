"""The check that a run makes before it uses fused_ln, with modules that stand in for it."""

import sys
from types import SimpleNamespace

import paddle

from launch.training.rms_norm_check import disagreement, of_fused_ln


def found_with(kind: str, *dtypes: str) -> str:
    """dtypes: of x and the weight. kind: right, another epsilon, a wrong gradient, not a number, fails."""

    def fused_rms_norm(x, weight, epsilon):
        if kind == "fails":
            raise OSError("Error Message Summary:\n-----\nno kernel image\nfor this card")
        wrong = 0.1 if kind == "another epsilon" else epsilon
        wide = x.astype("float32")
        y = wide * paddle.rsqrt(wide.pow(2).mean(-1, keepdim=True) + wrong) * weight.astype("float32")
        if kind == "a wrong gradient":
            y = (y.detach() - y) + y.detach()
        if kind == "not a number":
            y = y * float("nan")
        return y.astype(weight.dtype), None

    sys.modules["fused_ln"] = SimpleNamespace(fused_rms_norm=fused_rms_norm)
    return disagreement("the module fused_ln", of_fused_ln, dtypes=tuple(dtypes))
