"""The compiled operators of a CPU: module fused_ln.cpu, which `make custom-ops` builds, for training and answers."""

import importlib
from types import ModuleType

from custom_ops.fused_rms_norm.sources import digest
from launch.devices.fused_ln import find_build, paddle_version


def compiled_operators() -> ModuleType | None:
    """Return the module, where it is built from this repository and for this Paddle.

    Its functions take float32 tensors.
    """
    found = find_build()
    if found is None or found.paddle != paddle_version() or found.sources != digest():
        return None
    return importlib.import_module("fused_ln.cpu")
