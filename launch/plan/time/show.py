"""The time of a step as lines to read."""

from launch.plan.time.plan import DAY, TimePlan

HOUR, MINUTE = 3600, 60
MILLION = 1_000_000
SHOWN = 4  # parts by name, the longest; the rest together


def time_lines(plan: TimePlan, steps: int = 0) -> list[str]:
    """Step, speed and duration, then where a step's time goes.

    steps: of the run; 0 where it follows from data that are not known yet: then how long a million samples take.
    """
    whole = f"{steps:,} steps" if steps else f"a million samples of {plan.job.sequence_length:,} tokens"
    seconds = steps * plan.step_seconds if steps else plan.days(MILLION) * DAY
    trust = "" if plan.card.calibrated else "; uncalibrated (docs/plan.md)"
    return [
        f"time: {duration(plan.step_seconds)} a step, {plan.tokens_per_second:,.0f} tokens/s on all ranks, "
        f"MFU {plan.mfu:.0%}; {whole}: {duration(seconds)}{trust}",
        f"      {_parts(plan)}",
    ]


def _parts(plan: TimePlan) -> str:
    """matrix products 55 %, recompute 19 %, ..., other 3 %"""
    longest = sorted(plan.parts.items(), key=lambda part: -part[1])
    shown = [f"{name} {seconds / plan.step_seconds:.0%}" for name, seconds in longest[:SHOWN]]
    rest = sum(seconds for _, seconds in longest[SHOWN:])
    return ", ".join([*shown, *([f"other {rest / plan.step_seconds:.0%}"] if rest else [])])


def duration(seconds: float) -> str:
    """0.90 s, 25 minutes, 7.5 hours, 50 days."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.2f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:.0f} minutes"
    if seconds < 2 * DAY:
        return f"{seconds / HOUR:.1f} hours"
    return f"{seconds / DAY:.1f} days" if seconds < 20 * DAY else f"{seconds / DAY:.0f} days"
