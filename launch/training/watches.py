"""The watches of a run: loss, hangs, memory, and NaN in the weights."""

from collections.abc import Callable
from pathlib import Path

import paddle
from paddle.base import core
from paddlenlp.trainer import TrainerCallback

from launch.checkpoint.ranks import broadcast, gather
from launch.checkpoint.weight_files import listed
from launch.errors import UserError
from launch.reporting.records import past_losses, past_records
from launch.training.losses import Loss
from launch.training.optimizer import SkippedSteps
from launch.watch import (
    FORWARD,
    OPTIMIZER,
    USUAL_LOSSES,
    HangTimer,
    Limits,
    LossWatch,
    PairWatch,
    RunPhase,
    TrainingFault,
    parse_window,
)


class LossReport(TrainerCallback):
    """Ends the run on all ranks when its loss goes wrong; rank 0 decides."""

    def __init__(self, limits: Limits):
        self.limits = limits

    def on_train_begin(self, args, state, control, **kwargs):
        """Begin to watch the loss."""
        past = past_losses(args.output_dir, state.global_step, USUAL_LOSSES) if args.process_index == 0 else ()
        self.watch = LossWatch(self.limits, past)

    def on_log(self, args, state, control, *, logs: dict, **kwargs):
        """Stop the run at a wrong loss."""
        if "loss" not in logs:
            return
        fault = broadcast(self.watch.fault(logs))
        if fault is not None:
            raise UserError(_message(fault, logs["global_step"], Path(args.output_dir)))


def _message(fault: TrainingFault, step: int, output: Path) -> str:
    """Return what is wrong, its possible causes, and where to go on from."""
    checkpoints = sorted(output.glob("checkpoint-*/"), key=lambda path: path.stat().st_mtime)
    kept = f"the last checkpoint is {checkpoints[-1]}, from before" if checkpoints else "there is no checkpoint yet"
    causes = "\n".join(f"  {number}. {cause}" for number, cause in enumerate(fault.causes, start=1))
    return (
        f"stopped after step {step}: {fault.found}.\n"
        f"Likely causes, the likeliest first:\n{causes}\n"
        f"Nothing was saved since: {kept}. To go on all the same: --loss_watch 0."
    )


class PairReport(TrainerCallback):
    """Adds a warning to the record where a PairWatch has one, which then is printed and written with it."""

    def __init__(self, likelihoods: Callable[[dict], tuple[float, float]]):
        self.likelihoods = likelihoods

    def on_train_begin(self, args, state, control, **kwargs):
        """Begin to watch the pairs."""
        past = past_records(args.output_dir, state.global_step) if args.process_index == 0 else []
        self.watch = PairWatch(self.likelihoods, past)

    def on_log(self, args, state, control, *, logs: dict, **kwargs):
        """Add a warning to a record."""
        if "loss" in logs and (warning := self.watch.warning(logs)):
            logs["warning"] = warning


class WarningReport(TrainerCallback):
    """Adds a loss's own warning to the record, where it has one."""

    def __init__(self, warning: Callable[[dict], str | None]):
        self.warning = warning

    def on_log(self, args, state, control, *, logs: dict, **kwargs):
        """Add a warning to a record."""
        if "loss" in logs and (warning := self.warning(logs)):
            logs["warning"] = warning


class HangReport(TrainerCallback):
    """Restarts the hang timer at each micro batch and step.

    The timer does not run before training, while a checkpoint is loaded, nor after it, while the model is written: both
    may take long.
    """

    def __init__(self, timer: HangTimer):
        self.timer = timer

    def on_train_begin(self, args, state, control, **kwargs):
        """Start the timer."""
        self.timer.start()

    def on_train_end(self, args, state, control, **kwargs):
        """Stop the timer."""
        self.timer.stop()

    def on_substep_end(self, args, state, control, **kwargs):
        """Note progress."""
        self.timer.moved()

    def on_step_end(self, args, state, control, **kwargs):
        """Note the end of a step."""
        self.timer.step_done()


class PhaseReport(TrainerCallback):
    """Notes the phase of the optimizer step, for which the Trainer has no method."""

    def __init__(self, phase: RunPhase):
        self.phase = phase

    def on_optimizer_begin(self, args, state, control, **kwargs):
        """Note the phase of the optimizer."""
        self.phase.name = OPTIMIZER


class Watches:
    """The watches of a run.

    Attributes:
        hang_timer: Ends the run where it hangs.
        phase: Of the run.
        skipped_steps: Of a loss scale, None in other precisions.
        before_reports, after_reports: Callbacks in the order of their calls.
        random_weights_loss: The first loss of random weights, None for pretrained ones.
        loss: Of the Trainer.
    """

    def __init__(self, args, loss: Loss, random_weights_loss: float | None):
        self.hang_timer = HangTimer(args.hang_factor, args.hang_seconds)
        self.phase = RunPhase(FORWARD)
        self.skipped_steps = SkippedSteps() if args.fp16 else None
        limits = Limits(
            first_loss=parse_window(args.loss_first, random_weights_loss),
            collapse=args.loss_collapse if loss.of_text else 0,
            spike=args.loss_spike if loss.of_text else 0,
            rests=loss.may_rest,
            overflows=args.fp16,
            on_cpu=args.device == "cpu",
        )
        self.before_reports: list[TrainerCallback] = [self.skipped_steps] if self.skipped_steps else []
        if loss.likelihoods:
            self.before_reports.append(PairReport(loss.likelihoods))
        if loss.warning:
            self.before_reports.append(WarningReport(loss.warning))
        self.after_reports = [LossReport(limits)] if args.loss_watch else []
        self.after_reports += [HangReport(self.hang_timer), PhaseReport(self.phase)]


FLOAT_DTYPES = (paddle.float32, paddle.float16, paddle.bfloat16)


def require_finite(model) -> None:
    """Raise UserError on all ranks where a parameter of any rank has NaN or infinite values.

    All ranks call it together.

    Under stage 3 a rank looks at its slices, and for offloaded ones at the values in host memory.
    """
    here = [name for name, parameter in model.named_parameters() if not _is_finite(parameter)]
    names = sorted({name for names_of_rank in gather(here) for name in names_of_rank})
    if names:
        raise UserError(
            f"the weights are no numbers: NaN or infinite values in {listed(names)}. Nothing can be evaluated with "
            "them: resume from an earlier checkpoint, with a lower --learning_rate or --bf16 1 instead of --fp16 1."
        )


def _is_finite(parameter: paddle.Tensor) -> bool:
    values = getattr(parameter, "fw_storage", None)  # the slice that stage 3 keeps of a parameter it has released
    values = parameter if values is None else values
    if values.dtype not in FLOAT_DTYPES or not values._is_initialized():
        return True
    if values.place.is_cuda_pinned_place():
        values = values.detach()._copy_to(core.CPUPlace(), True)
    return bool(paddle.isfinite(values).all())
