"""At the first step: the memory that was planned beside the memory that was taken; both for run_summary.json."""

from paddlenlp.trainer import TrainerCallback

from launch.config.aliases import todays_flags
from launch.config.flag_values import parse_flags
from launch.errors import UserError
from launch.plan.hardware import Card, card_named
from launch.plan.job import Job
from launch.plan.memory import plan_memory
from launch.reporting.callbacks import format_bytes
from launch.training.device import card_name, peak_memory_bytes


class PlannedMemory(TrainerCallback):
    """script, argv: of the shared module, as they were given. facts: of rank 0's pipeline stage, after the first step;
    bytes of tensors, which is what Paddle's allocator counts."""

    def __init__(self, script: str, argv: list[str], processes: int):
        self.script, self.argv, self.processes = script, argv, processes
        self.facts: dict | None = None

    def on_step_end(self, args, state, control, **kwargs):
        if self.facts is not None or args.process_index != 0:
            return
        measured = peak_memory_bytes()
        self.facts = {"planned_peak_bytes": self.planned(), "measured_peak_bytes": measured}
        print(self.line(), flush=True)

    def planned(self) -> int | None:
        """Of the first stage; None where the flags are for a model or layout that cannot be planned."""
        flags, _ = todays_flags(parse_flags(self.argv))
        name = card_name()
        try:
            card: Card | None = card_named(name) if name else None
            job = Job.from_flags(self.script, flags, self.processes, card)
        except UserError:
            return None
        return plan_memory(job, card).stages[0].peak.allocated_bytes

    def line(self) -> str:
        planned, measured = self.facts["planned_peak_bytes"], self.facts["measured_peak_bytes"]
        if planned is None:
            return f"memory: {format_bytes(measured)} of tensors at the first step's peak"
        sizes = f"{format_bytes(planned)} planned, {format_bytes(measured)} at the first step's peak"
        if not card_name():
            return f"memory: {sizes} (the plan is of Paddle's own operators, as with --cpu_fast off)"
        return f"memory: {sizes} ({planned / measured - 1:+.0%})"
