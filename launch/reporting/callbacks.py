"""Reports of a run while it runs: one line per logging step on the terminal, the same as JSON lines in a file."""

from paddlenlp.trainer import TrainerCallback

from launch.reporting.announce import format_duration
from launch.reporting.records import LogWriter


def format_bytes(count: int) -> str:
    """12.3 MiB or 4.56 GiB."""
    return f"{count / 2**20:.1f} MiB" if count < 2**30 else f"{count / 2**30:.2f} GiB"


def format_step(record: dict, max_steps: int) -> str:
    """One logging step in one line of at most 110 characters."""
    return (
        f"step {record['global_step']:>{len(str(max_steps))}}/{max_steps} {record['progress']:4.0%}"
        f"  loss {record['loss']:.4f}  lr {record['learning_rate']:.2e}  |g| {record['grad_norm']:.2f}"
        f"  {record['tokens_per_second']:,.0f} tok/s  MFU {record['mfu']:.1%}/{record['mfu_with_attention']:.1%}"
        f"  {format_bytes(record['peak_memory_bytes'])}  ETA {format_duration(record['eta_seconds'])}"
    )


def format_evaluation(metrics: dict) -> str:
    """One evaluation in one line; accuracy, the share of tokens that were the most likely, where it was counted, and
    scores of answers where the model answered questions."""
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
        if state.global_step >= state.max_steps:
            control.should_log = True


class TerminalReport(TrainerCallback):
    """Prints one line per record on rank 0, flushed, so that a log file grows as the run does."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if args.process_index != 0 or logs is None:
            return
        line = format_step(logs, args.max_steps) if "loss" in logs else format_evaluation(logs)
        print(line, flush=True)


class JsonLinesReport(TrainerCallback):
    """Appends every record to train_log.jsonl in the output directory, floats with all their digits."""

    def __init__(self):
        self.log: LogWriter | None = None

    def on_log(self, args, state, control, logs=None, **kwargs):
        if args.process_index == 0 and logs is not None:
            self.log = self.log or LogWriter(args.output_dir, continues=args.do_train)
            self.log.write(logs)


REPORTS = (LogLastStep, TerminalReport, JsonLinesReport)  # of every run
