"""How long a step takes, from formulas over the hardware catalogue: no Paddle, nothing is run.

plan = plan_time(job, CARDS["A100-80G"])
plan.step_seconds, plan.tokens_per_second, plan.parts
"""

from launch.plan.time.plan import TimePlan, plan_time

__all__ = ["TimePlan", "plan_time"]
