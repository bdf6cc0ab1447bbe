"""The compiled operators of a CPU: module fused_ln.cpu, which `make custom-ops` builds, for training and answers."""

import importlib
from types import ModuleType

from custom_ops.fused_rms_norm.sources import digest
from launch.cpu.settings import this_processor
from launch.devices.fused_ln import BUILD, find_build, paddle_version


def compiled_operators() -> ModuleType | None:
    """Return the module, where it is built from this repository and for this Paddle.

    Its functions take float32 tensors.
    """
    return importlib.import_module("fused_ln.cpu") if _is_built() else None


def bfloat16_obstacle() -> str:
    """Return why products cannot be computed in bfloat16 on this CPU, or ""."""
    processor = this_processor()
    if processor is None or not processor.has_bfloat16:
        return "this processor has neither AVX512-bf16 nor AMX"
    return "" if _is_built() else f"the operators of a CPU are not built: {BUILD}"


def _is_built() -> bool:
    found = find_build()
    return found is not None and found.paddle == paddle_version() and found.sources == digest()
