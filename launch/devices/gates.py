"""What the device may do: each three-state switch becomes a decision with its reason. No Paddle here."""

import importlib.util
from dataclasses import dataclass

from launch.errors import UserError


@dataclass(frozen=True)
class Decision:
    """The outcome of a three-state switch: whether the feature is used, and why in one line."""

    enabled: bool
    reason: str


def flash_attention(switch: str, compute_capability: tuple[int, int] | None, dtype: str) -> Decision:
    """Whether flash attention is used.

    compute_capability: (major, minor) of the card, None on a CPU. dtype: the dtype attention is computed in.
    FlashAttention-2 runs on compute capability 8.0 and above in half precision only (its README); elsewhere the
    framework's exact attention is used. Raises UserError when `required` meets a device that cannot.
    """
    if compute_capability is None:
        obstacle = "no GPU"
    elif compute_capability < (8, 0):
        found = ".".join(map(str, compute_capability))
        obstacle = f"compute capability {found}, it needs 8.0 (A100, 3090) or newer"
    elif dtype not in ("float16", "bfloat16"):
        obstacle = f"{dtype}, it needs --fp16 1 or --bf16 1"
    else:
        obstacle = ""
    return _decide("use_flash_attention", "flash attention", switch, obstacle, "exact attention")


def fused_rms_norm(switch: str, compute_capability: tuple[int, int] | None) -> Decision:
    """Whether the fused RMSNorm operator (module fused_ln) is used. Raises UserError when required and missing."""
    if compute_capability is None:
        obstacle = "no GPU"
    elif importlib.util.find_spec("fused_ln") is None:
        obstacle = "the module fused_ln is not installed"
    else:
        obstacle = ""
    return _decide("use_fused_rms_norm", "fused RMSNorm", switch, obstacle, "the framework's own RMSNorm")


def _decide(flag: str, feature: str, switch: str, obstacle: str, instead: str) -> Decision:
    if switch == "required" and obstacle:
        raise UserError(f"--{flag} required: not possible here: {obstacle}. Use --{flag} auto for {instead}.")
    if switch == "off":
        return Decision(False, f"{feature}: off by --{flag} off, {instead}")
    if obstacle:
        return Decision(False, f"{feature}: off ({obstacle}), {instead}")
    return Decision(True, f"{feature}: on")
