"""What a run reports: a record of each logged interval, as a line and in a file, memory, run_summary.json."""

import time

from paddlenlp.trainer import TrainerCallback

from launch.checkpoint.ranks import barrier, gather, rank
from launch.config.run_config import RunConfig
from launch.cpu.settings import this_processor
from launch.errors import UserError
from launch.plan.hardware import Card, card_named
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.reporting.announce import format_duration
from launch.reporting.records import (
    LogWriter,
    command_line,
    git_revision,
    package_versions,
    plain,
    topology,
    write_summary,
)
from launch.reporting.throughput import Throughput, TrainingClock
from launch.training.device import card_name, peak_memory_bytes


class Reporter:
    """The part of the trainer that reports.

    Attributes:
        clock: Of training alone.
        learning_rate: Of the current step.
        first_record, last_record: Of the log, {} before the first.
    """

    def __init__(self, trainer, throughput: Throughput):
        self.trainer, self.throughput = trainer, throughput
        self.clock = TrainingClock()
        self.learning_rate = 0.0
        self.first_record: dict = {}
        self.last_record: dict = {}
        self._sum_of_losses, self._steps = 0.0, 0

    def note_interval(self, sum_of_losses: float, steps: int) -> None:
        """Call before interval_record: the losses of the steps since the last record."""
        self._sum_of_losses, self._steps = sum_of_losses, steps

    def interval_record(self) -> dict:
        """Return the record of the steps since the last one."""
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
            **trainer.loss.interval(),
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


def format_bytes(count: int) -> str:
    """Return a size such as 12.3 MiB or 4.56 GiB."""
    return f"{count / 2**20:.1f} MiB" if count < 2**30 else f"{count / 2**30:.2f} GiB"


def format_step(record: dict, max_steps: int) -> str:
    """Return one logging step in one line of at most 110 characters."""
    return (
        f"step {record['global_step']:>{len(str(max_steps))}}/{max_steps} {record['progress']:4.0%}"
        f"  loss {record['loss']:.4f}  lr {record['learning_rate']:.2e}  |g| {record['grad_norm']:.2f}"
        f"  {record['tokens_per_second']:,.0f} tok/s  MFU {record['mfu']:.1%}/{record['mfu_with_attention']:.1%}"
        f"  {format_bytes(record['peak_memory_bytes'])}  ETA {format_duration(record['eta_seconds'])}"
    )


def format_pairs(measures: dict) -> str:
    """Return the measures of preference tuning (launch/training/preference_losses.py).

    An interval of KTO may have desired responses alone, or none: then there is no margin.
    """
    margin = (
        f"  margin {measures['rewards_margin']:+.3f}"
        f" ({measures['rewards_chosen']:+.3f} - {measures['rewards_rejected']:+.3f})"
        if "rewards_margin" in measures
        else ""
    )
    kl = f"  KL {measures['kl']:.4f}" if "kl" in measures else ""
    return f"loss {measures['loss']:.4f}  accuracy {measures['accuracy']:.1%}{margin}{kl}"


def format_rollout(measures: dict) -> str:
    """Return the measures of reinforcement (launch/training/rollout_loss.py)."""
    kl = f"  KL {measures['kl']:.4f}" if "kl" in measures else ""
    if "reverse_kl" in measures:
        kl = f"  KL to the teacher {measures['reverse_kl']:.4f}"
    reward = f"reward {measures['reward']:.3f}  " if "reward" in measures else ""
    silent = f"without signal {measures['silent_groups']:.0%}  " if "silent_groups" in measures else ""
    redrawn = f"replaced {measures['redrawn_groups']}  " if "redrawn_groups" in measures else ""
    ratio = f"  |ln ratio| {measures['largest_log_ratio']:.1e} at most"
    if "largest_gap" in measures:
        ratio = f"  |ln ratio| at first {measures['largest_gap']:.1e} at most, {measures['far_gaps']:.2%} above 1e-5"
    return (
        f"{reward}{silent}{redrawn}{measures['answer_tokens']:.0f} tokens  cut off {measures['truncated']:.0%}"
        f"  entropy {measures['entropy']:.2f}{kl}{ratio}"
    )


def format_evaluation(metrics: dict) -> str:
    """Return one evaluation in one line.

    It has accuracy, the share of tokens that were the most likely, where it was counted, and scores of answers where
    the model answered questions.
    """
    for unit in ("pairs", "responses"):
        if count := metrics.get(f"eval_{unit}"):
            measures = {name.removeprefix("eval_"): value for name, value in metrics.items()}
            return f"eval at step {metrics['global_step']}  {format_pairs(measures)}  on {count:,} {unit}"
    if "eval_reward" in metrics:
        return (
            f"eval at step {metrics['global_step']}  reward {metrics['eval_reward']:.3f}"
            f"  {metrics['eval_tokens']:.0f} tokens  cut off {metrics['eval_truncated']:.0%}"
            f"  on {metrics['eval_answers']:,} most likely answers"
        )
    accuracy = f"  accuracy {metrics['eval_accuracy']:.1%}" if "eval_accuracy" in metrics else ""
    if "eval_bleu" in metrics:
        accuracy += f"  BLEU {metrics['eval_bleu']:.1f}  ROUGE-L {metrics['eval_rougel']:.1f}"
    return (
        f"eval at step {metrics['global_step']}  loss {metrics['eval_loss']:.4f}"
        f"  perplexity {metrics['eval_perplexity']:,.2f}{accuracy}  on {metrics['eval_tokens']:,} tokens"
    )


class LogLastStep(TrainerCallback):
    """Logs the last step, too, where max_steps is no multiple of logging_steps."""

    def on_step_end(self, args, state, control, **kwargs):
        """Log the last step."""
        if state.global_step >= state.max_steps:
            control.should_log = True


class TerminalReport(TrainerCallback):
    """Prints one line per record on rank 0, flushed, so that a log file grows as the run does."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Print a record on rank 0."""
        if args.process_index != 0 or logs is None:
            return
        print(format_step(logs, args.max_steps) if "loss" in logs else format_evaluation(logs), flush=True)
        if "accuracy" in logs:
            print(f"    {'responses' if 'desired' in logs else 'pairs'}: {format_pairs(logs)}", flush=True)
        if "answer_tokens" in logs:
            print(f"    answers: {format_rollout(logs)}", flush=True)
        if "warning" in logs:
            print(f"warning: {logs['warning']}", flush=True)


class JsonLinesReport(TrainerCallback):
    """Appends every record to train_log.jsonl in the output directory, floats with all their digits."""

    def __init__(self):
        self.log: LogWriter | None = None

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Write a record on rank 0."""
        if args.process_index == 0 and logs is not None:
            self.log = self.log or LogWriter(args.output_dir, continues=args.do_train)
            self.log.write(logs)


REPORTS = (LogLastStep, TerminalReport, JsonLinesReport)  # of every run


class PlannedMemory(TrainerCallback):
    """Compares planned with measured memory after the first step.

    Attributes:
        facts: Bytes of tensors on rank 0, as Paddle's allocator counts them.
    """

    def __init__(self, run: RunConfig):
        self.run = run
        self.facts: dict | None = None

    def on_step_end(self, args, state, control, **kwargs):
        """Print planned and measured memory after the first step."""
        if self.facts is not None or args.process_index != 0:
            return
        measured = peak_memory_bytes()
        self.facts = {"planned_peak_bytes": self.planned(), "measured_peak_bytes": measured}
        print(self.line(self.facts["planned_peak_bytes"], measured), flush=True)

    def planned(self) -> int | None:
        """Return the bytes planned for the first pipeline stage.

        None where the plan does not know the model or layout.
        """
        name = card_name()
        try:
            card: Card | None = card_named(name) if name else None
            job = Job.from_run(self.run, card)
        except UserError:
            return None
        return plan_memory(job, card).stages[0].peak.allocated_bytes

    def line(self, planned: int | None, measured: int) -> str:
        """Return the line about memory."""
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
    """Return the dictionary of run_summary.json without the ranks' peaks.

    Seconds are wall-clock; the peak memory is rank 0's at the last logged step.
    """
    processor = this_processor()
    first, last = trainer.reporter.first_record, trainer.reporter.last_record
    planned = [found for found in trainer.callback_handler.callbacks if isinstance(found, PlannedMemory)]
    return {
        "command": command_line(),
        "arguments": {type(part).__name__: plain(vars(part)) for part in arguments},
        "versions": package_versions(),
        "git_revision": git_revision(),
        "hardware": card_name() or (processor.name if processor else ""),
        "topology": topology(trainer.args),
        "parameters": trainer.reporter.throughput.shape.parameters,
        "global_step": trainer.state.global_step,
        "consumed_tokens": last.get("consumed_tokens", 0),
        "first_loss": first.get("loss"),
        "last_loss": last.get("loss"),
        "evaluation": evaluation,
        "peak_memory_bytes": last.get("peak_memory_bytes"),
        "first_step_memory": planned[0].facts if planned else None,  # planned and measured bytes
        "seconds": time.time() - started,
    }
