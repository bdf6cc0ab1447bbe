"""What a plan answers: memory by part and phase, the time of a step, whether it fits."""

import json

from data_tools.language import localized
from data_tools.terminal import columns, width, wrapped
from launch.plan.hardware import Card
from launch.plan.job import Job
from launch.plan.memory import plan_memory
from launch.plan.memory.show import as_json, memory_lines
from launch.plan.time import plan_time
from launch.plan.time.show import MILLION, time_lines

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)


def report(job: Job, card: Card | None, form: str = TEXT, steps: int = 0) -> str:
    """The plan of a job on such cards, to print. card: None for a CPU. steps: of the run, 0 where it is not known."""
    plan, time = plan_memory(job, card), plan_time(job, card)
    if form == JSON:
        speed = {
            "step_seconds": time.step_seconds,
            "tokens_per_second": time.tokens_per_second,
            "parts_seconds": time.parts,
            "steps_seconds": steps * time.step_seconds if steps else None,
            "million_samples_days": time.days(MILLION),
        }
        return json.dumps(as_json(job, plan) | {"time": speed}, indent=1)
    lines = [localized(line) for line in (*memory_lines(job, plan), *time_lines(time, steps))]
    return "\n".join(wrapped(line, further=" " * 6) if columns(line) > width() else line for line in lines)
