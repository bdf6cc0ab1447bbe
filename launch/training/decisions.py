"""The three-state switches, decided for the device this process has."""

from dataclasses import dataclass

from launch.devices.gates import Decision, flash_attention, fused_rms_norm
from launch.training.device import compute_capability
from launch.training.model import compute_dtype


@dataclass(frozen=True)
class Decisions:
    flash_attention: Decision
    fused_rms_norm: Decision

    @property
    def lines(self) -> list[str]:
        return [self.flash_attention.reason, self.fused_rms_norm.reason]


def decide(model_args, training_args) -> Decisions:
    """Raises UserError where a switch says required and the device cannot."""
    capability = compute_capability()
    return Decisions(
        flash_attention(model_args.use_flash_attention, capability, compute_dtype(training_args)),
        fused_rms_norm(model_args.use_fused_rms_norm, capability),
    )
