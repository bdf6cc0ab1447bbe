"""What the device may do: each three-state switch becomes a decision with its reason. No Paddle here.

auto and on use a feature where nothing speaks against it and say why not elsewhere, required makes that an error,
off never uses it.
"""

from dataclasses import dataclass, replace

from launch.devices.fused_ln import PADDLES_OWN
from launch.errors import UserError


@dataclass(frozen=True)
class Decision:
    """The outcome of a three-state switch: whether the feature is used, and why in one line."""

    enabled: bool
    reason: str


def flash_attention(switch: str, obstacle: str, kernel: str = "") -> Decision:
    """Whether flash attention is used. obstacle: what speaks against it, "" for nothing. kernel: its name.

    Raises UserError when `required` meets an obstacle.
    """
    decision = _decide("use_flash_attention", "flash attention", switch, obstacle, "exact attention")
    return replace(decision, reason=f"{decision.reason}, {kernel}") if decision.enabled and kernel else decision


def fused_rms_norm(switch: str, obstacle: str, of_paddle: str | None = None) -> Decision:
    """Whether a fused RMSNorm operator is used. obstacle: what speaks against the module fused_ln, "" for nothing.

    of_paddle: what speaks against Paddle's own operator in its place; None where there is none, or it was not tried.
    Raises UserError when `required` meets an obstacle.
    """
    if obstacle and of_paddle == "":
        return Decision(True, f"fused RMSNorm: on, by {PADDLES_OWN} ({obstacle})")
    found = f"{obstacle}; {of_paddle}" if of_paddle else obstacle
    return _decide("use_fused_rms_norm", "fused RMSNorm", switch, found, "the framework's own RMSNorm")


def _decide(flag: str, feature: str, switch: str, obstacle: str, instead: str) -> Decision:
    if switch == "required" and obstacle:
        raise UserError(f"--{flag} required: not possible here: {obstacle}. Use --{flag} auto for {instead}.")
    if switch == "off":
        return Decision(False, f"{feature}: off by --{flag} off, {instead}")
    if obstacle:
        return Decision(False, f"{feature}: off ({obstacle}), {instead}")
    return Decision(True, f"{feature}: on")
