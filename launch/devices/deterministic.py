"""The switches that make two equal runs on GPUs equal to the bit: set before Paddle is imported, checked after it.

Measured on CPUs alone: there every run is equal without them. On GPUs they are what Paddle and NVIDIA document; this
program has not been run on cards.
"""

import os
from collections.abc import Callable, MutableMapping

from launch.errors import UserError

# Read by Paddle's GPU build: convolutions, flash attention's backward, scatter of embedding gradients; and no choice
# of kernels by trial, whose winner differs from run to run.
PADDLE_FLAGS = {
    "FLAGS_cudnn_deterministic": "1",
    "FLAGS_embedding_deterministic": "1",
    "FLAGS_cudnn_exhaustive_search": "0",
}
# https://docs.nvidia.com/cuda/cublas/#results-reproducibility: one fixed workspace a stream.
# https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html: one algorithm and protocol, so that sums are
# always formed in the same order; NVLink SHARP sums in the switch.
VARIABLES = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    "NCCL_NVLS_ENABLE": "0",
}


def set_switches(environment: MutableMapping[str, str] = os.environ) -> str:
    """Set them for this process, before it imports Paddle; returns the line about them.

    Raises UserError where one is set to something else already: that run would not be deterministic.
    """
    wanted = PADDLE_FLAGS | VARIABLES
    others = [name for name, value in wanted.items() if environment.get(name, value) != value]
    if others:
        found, right = (", ".join(f"{name}={of[name]}" for name in others) for of in (environment, wanted))
        raise UserError(
            f"--deterministic 1: found {found} in the environment, expected {right}: unset it, or leave "
            "--deterministic out."
        )
    environment.update(wanted)
    return "deterministic: " + ", ".join(f"{name}={value}" for name, value in wanted.items())


def check_switches(value_of: Callable[[str], object]) -> None:
    """value_of: gives what Paddle has made of a flag. Raises UserError where it has not taken one."""
    wrong = [name for name, value in PADDLE_FLAGS.items() if str(int(bool(value_of(name)))) != value]
    if wrong:
        raise UserError(f"--deterministic 1: Paddle did not take {', '.join(wrong)}: is its version the pinned one?")
