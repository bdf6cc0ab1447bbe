"""What a run reports: a record of each logged interval, planned and measured memory, run_summary.json."""

import time

from paddlenlp.trainer import TrainerCallback

from launch.checkpoint.ranks import barrier, gather, rank
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.plan.hardware import Card, card_named
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.reporting.callbacks import format_bytes
from launch.reporting.records import command_line, git_revision, package_versions, plain, topology, write_summary
from launch.reporting.throughput import Throughput, TrainingClock
from launch.training.device import card_name, peak_memory_bytes


class Reporter:
    """clock: of training alone. learning_rate: of the step that is being made. first_record, last_record: of the log,
    {} before there is one."""

    def __init__(self, trainer, throughput: Throughput):
        self.trainer, self.throughput = trainer, throughput
        self.clock = TrainingClock()
        self.learning_rate = 0.0
        self.first_record: dict = {}
        self.last_record: dict = {}
        self._sum_of_losses, self._steps = 0.0, 0

    def note_interval(self, sum_of_losses: float, steps: int) -> None:
        """Before interval_record: the losses of the steps since the last one."""
        self._sum_of_losses, self._steps = sum_of_losses, steps

    def interval_record(self) -> dict:
        """What the log says of the steps since the last record."""
        trainer, data = self.trainer, self.trainer.data
        args, step, steps = trainer.args, trainer.state.global_step, self._steps
        consumed_samples, consumed_tokens = data.consumed_samples(step), data.tokens_until(step)
        seconds = self.clock.lap()
        speed = self.throughput.measure(consumed_tokens - data.tokens_until(step - steps), steps, seconds)
        self.last_record = {
            "global_step": step,
            "progress": step / args.max_steps,
            "epoch": data.stream.position(step) / len(data.train),
            "loss": self._sum_of_losses / steps,
            "learning_rate": self.learning_rate,
            "grad_norm": trainer.grad_norm.value,
            **(trainer.watches.skipped_steps.record() if trainer.watches.skipped_steps else {}),
            **speed,
            "data_share": self.clock.data_seconds / seconds,
            "peak_memory_bytes": peak_memory_bytes(),
            "eta_seconds": speed["step_seconds"] * (args.max_steps - step),
            "consumed_samples": consumed_samples,
            "consumed_tokens": consumed_tokens,
        }
        self.first_record = self.first_record or self.last_record
        return self.last_record


class PlannedMemory(TrainerCallback):
    """facts: of rank 0's pipeline stage, after the first step; bytes of tensors, which is what Paddle's allocator
    counts."""

    def __init__(self, run: RunConfig):
        self.run = run
        self.facts: dict | None = None

    def on_step_end(self, args, state, control, **kwargs):
        if self.facts is not None or args.process_index != 0:
            return
        measured = peak_memory_bytes()
        self.facts = {"planned_peak_bytes": self.planned(), "measured_peak_bytes": measured}
        print(self.line(), flush=True)

    def planned(self) -> int | None:
        """Bytes planned for the first stage; None where the flags are for a model or layout that cannot be planned."""
        name = card_name()
        try:
            card: Card | None = card_named(name) if name else None
            job = Job.from_run(self.run, card)
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


def finish(arguments: list, trainer, evaluation: dict | None, started: float) -> None:
    """Write run_summary.json on rank 0 and wait for it everywhere.

    arguments: the parsed argument objects. started: time.time() at the start of the process.
    """
    peaks = gather(peak_memory_bytes())
    if rank() == 0:
        summary = _summary(arguments, trainer, evaluation, started) | {"peak_memory_bytes_by_rank": peaks}
        write_summary(trainer.args.output_dir, summary)
    barrier()


def _summary(arguments: list, trainer, evaluation: dict | None, started: float) -> dict:
    """The dictionary of run_summary.json without the ranks' peaks; seconds are wall-clock, the peak memory is rank 0's
    at the last logged step."""
    first, last = trainer.reporter.first_record, trainer.reporter.last_record
    return {
        "command": command_line(),
        "arguments": {type(one).__name__: plain(vars(one)) for one in arguments},
        "versions": package_versions(),
        "git_revision": git_revision(),
        "topology": topology(trainer.args),
        "parameters": trainer.reporter.throughput.shape.parameters,
        "global_step": trainer.state.global_step,
        "consumed_tokens": last.get("consumed_tokens", 0),
        "first_loss": first.get("loss"),
        "last_loss": last.get("loss"),
        "evaluation": evaluation,
        "peak_memory_bytes": last.get("peak_memory_bytes"),
        "first_step_memory": _first_step_memory(trainer),
        "seconds": time.time() - started,
    }


def _first_step_memory(trainer) -> dict | None:
    """What was planned and what was taken."""
    planned = [one for one in trainer.callback_handler.callbacks if isinstance(one, PlannedMemory)]
    return planned[0].facts if planned else None
