"""The switches of a run, decided for the devices of all ranks: one rank's obstacle counts for all."""

from dataclasses import dataclass, field
from types import SimpleNamespace

from launch.checkpoint.ranks import gather
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.switches import SWITCHES, precision
from launch.switches.switch import Decision, Switch, case_of
from launch.training.device import compute_capability


@dataclass(frozen=True)
class Decisions:
    """The kernels and the precision that a run uses."""

    precision: str
    made: dict[Switch, Decision] = field(default_factory=dict)

    def uses(self, switch: Switch) -> bool:
        """Return whether a fused kernel is used."""
        return switch in self.made and self.made[switch].enabled

    @property
    def lines(self) -> list[str]:
        """Return the lines about all decisions."""
        return [self.precision, *(decision.reason for decision in self.made.values())]


def decide(model_args, adapter_args, data_args, training_args, obstacle: str = "") -> Decisions:
    """Return the decisions. Called by all ranks together.

    obstacle: why a CPU that has bfloat16 cannot compute products in it, or "".

    Raises:
        UserError: on all ranks, where a switch says required and a device of one of them cannot
    """
    capability = compute_capability()
    groups = (model_args, adapter_args, data_args, training_args)
    values = SimpleNamespace(**{name: value for group in groups for name, value in vars(group).items()})
    dtype = precision.attention_dtype(values.bf16, values.fp16, values.fp16_opt_level)
    case = case_of(values, load_config(values.model_name_or_path), capability, dtype)
    decisions = Decisions(_precision(values, capability, obstacle))
    for switch in SWITCHES:
        if (switch.needs is None or decisions.uses(switch.needs)) and any(gather(switch.concerns(case))):
            decisions.made[switch] = switch.start(values, case)
    return decisions


def _precision(values, capability: tuple[int, int] | None, obstacle: str) -> str:
    """Return the line. Raises UserError where --bf16 auto came to different ends, as cards of several kinds make it."""
    bf16, fp16 = values.bf16, values.fp16
    if len(set(gather((bf16, fp16)))) > 1:
        raise UserError(
            "--bf16: found auto, and some ranks have cards with bfloat16, some without. Use --bf16 0 --fp16 1, or "
            "cards of one kind."
        )
    return precision.line(values, bf16, fp16, capability, bool(values.bfloat16_products), obstacle)
