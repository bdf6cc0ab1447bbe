"""What a plan answers: memory by part and phase, the time of a step, whether it fits."""

import json

from launch.plan.hardware import Card
from launch.plan.job import Job
from launch.plan.memory import plan_memory
from launch.plan.memory.show import as_json, memory_lines
from launch.plan.time.plan import plan_time

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)


def report(job: Job, card: Card | None, form: str = TEXT) -> str:
    """The plan of a job on such cards, to print. card: None for a CPU."""
    plan, time = plan_memory(job, card), plan_time(job, card)
    if form == JSON:
        speed = {
            "step_seconds": time.step_seconds,
            "tokens_per_second": time.tokens_per_second,
            "parts_seconds": time.parts,
        }
        return json.dumps(as_json(job, plan) | {"time": speed}, indent=1)
    speed = (
        f"time: {time.step_seconds:.2f} s a step, {time.tokens_per_second:,.0f} tokens/s on all cards; the most of it: "
        f"{time.dominating}"
    )
    return "\n".join([*memory_lines(job, plan), speed])
