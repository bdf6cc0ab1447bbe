"""Paddle's flags for cards, and those of --deterministic, which make two equal runs equal to the bit.

They are set before Paddle is imported, those of --deterministic checked after it. Measured on CPUs alone: there every
run is equal without them. On GPUs they are what Paddle and NVIDIA document; this program has not been run on cards. No
Paddle here.
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
PINNED_BY_NEED = "FLAGS_use_auto_growth_pinned_allocator"
# For every process that computes on cards; a value in the environment stays.
CARD_FLAGS = {
    # Paddle 3.3's element-wise kernels keep the permutation of a transposed operand: NCCL then refuses to send
    # ChatGLM2's hidden states ("The tensor must be contiguous"), and paddlenlp 3.0.0b4 never ran with them.
    # paddle/phi/kernels/stride/elementwise_stride_base.cu.h
    "FLAGS_use_stride_compute_kernel": "0",
    # Page-locked memory tensor by tensor, as much as there is: otherwise at most half of the host's, and an "invalid
    # argument" beyond. paddle/phi/backends/cpu/cpu_info.cc, CUDAPinnedMaxAllocSize
    PINNED_BY_NEED: "1",
}


def set_card_flags(environment: MutableMapping[str, str]) -> None:
    """Set the flags that cards need, before Paddle is imported and reads them."""
    for name, value in CARD_FLAGS.items():
        environment.setdefault(name, value)


def set_switches(environment: MutableMapping[str, str] = os.environ) -> str:
    """Set the switches for this process before it imports Paddle. Returns the line about them.

    Raises:
        UserError: If one has another value already: the run would not be deterministic.
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
    """Check that Paddle has accepted the flags.

    Args:
        value_of: Returns Paddle's value of a flag.

    Raises:
        UserError: If it has not.
    """
    wrong = [name for name, value in PADDLE_FLAGS.items() if str(int(bool(value_of(name)))) != value]
    if wrong:
        raise UserError(f"--deterministic 1: Paddle did not take {', '.join(wrong)}: is its version the pinned one?")
