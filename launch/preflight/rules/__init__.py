"""The compatibility matrix: which flags, layouts and models do not go together, one table a subject.

Each row names its condition, what happens (the run is refused, or told what will happen), the reason, where that is
seen in the pinned paddlenlp 3.0.0b4 and Paddle 3.3.1, and the fix. Rows of flags that a shared module does not have
never apply to it.
"""

from launch.preflight.rules import adapters, batch, checkpoint, degrees, model_limits, offload, overlap, unsupported
from launch.preflight.rules.rule import Request, Rule

RULES: tuple[Rule, ...] = (
    *degrees.RULES,
    *model_limits.RULES,
    *model_limits.FAMILY_RULES,
    *batch.RULES,
    *overlap.RULES,
    *offload.RULES,
    *checkpoint.RULES,
    *adapters.RULES,
    *unsupported.RULES,
)

__all__ = ["RULES", "Request", "Rule"]
