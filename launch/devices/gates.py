"""What the device may do: each three-state switch becomes a decision with its reason. No Paddle here.

auto and on use a feature where nothing speaks against it and say why not elsewhere, required makes that an error,
off never uses it.
"""

from dataclasses import dataclass

from launch.errors import UserError


@dataclass(frozen=True)
class Decision:
    """The outcome of a three-state switch: whether the feature is used, and why in one line."""

    enabled: bool
    reason: str


def flash_attention(switch: str, obstacle: str) -> Decision:
    """Whether flash attention is used. obstacle: what speaks against it, "" for nothing.

    Raises UserError when `required` meets an obstacle.
    """
    return _decide("use_flash_attention", "flash attention", switch, obstacle, "exact attention")


def fused_rms_norm(switch: str, obstacle: str) -> Decision:
    """Whether the fused RMSNorm operator (module fused_ln) is used. obstacle: what speaks against it, "" for nothing.

    Raises UserError when `required` meets an obstacle.
    """
    return _decide("use_fused_rms_norm", "fused RMSNorm", switch, obstacle, "the framework's own RMSNorm")


def _decide(flag: str, feature: str, switch: str, obstacle: str, instead: str) -> Decision:
    if switch == "required" and obstacle:
        raise UserError(f"--{flag} required: not possible here: {obstacle}. Use --{flag} auto for {instead}.")
    if switch == "off":
        return Decision(False, f"{feature}: off by --{flag} off, {instead}")
    if obstacle:
        return Decision(False, f"{feature}: off ({obstacle}), {instead}")
    return Decision(True, f"{feature}: on")
