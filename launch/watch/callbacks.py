"""The watches as callbacks of a run."""

from pathlib import Path

from paddlenlp.trainer import TrainerCallback

from launch.errors import UserError
from launch.reporting.records import past_losses
from launch.watch.hang import HangTimer
from launch.watch.loss import REMEMBERED, Fault, Limits, LossWatch
from launch.watch.memory import OPTIMIZER, Phase


class LossReport(TrainerCallback):
    """Ends the run on all ranks when its loss goes wrong; rank 0 decides. broadcast: gives rank 0's value to all."""

    def __init__(self, limits: Limits, broadcast):
        self.limits = limits
        self.broadcast = broadcast

    def on_train_begin(self, args, state, control, **kwargs):
        past = past_losses(args.output_dir, state.global_step, REMEMBERED) if args.process_index == 0 else ()
        self.watch = LossWatch(self.limits, past)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" not in logs:
            return
        fault = self.broadcast(self.watch.fault(logs))
        if fault is not None:
            raise UserError(message(fault, logs["global_step"], Path(args.output_dir)))


def message(fault: Fault, step: int, output: Path) -> str:
    """What is wrong, why that may be, and where to go on from."""
    checkpoints = sorted(output.glob("checkpoint-*/"), key=lambda path: path.stat().st_mtime)
    kept = f"the last checkpoint is {checkpoints[-1]}, from before" if checkpoints else "there is no checkpoint yet"
    causes = "\n".join(f"  {number}. {cause}" for number, cause in enumerate(fault.causes, start=1))
    return (
        f"stopped after step {step}: {fault.found}.\n"
        f"Likely causes, the likeliest first:\n{causes}\n"
        f"Nothing was saved since: {kept}. To go on all the same: --loss_watch 0."
    )


class HangReport(TrainerCallback):
    """Tells a timer that the run moves. Loading a checkpoint before and writing the model after may take long."""

    def __init__(self, timer: HangTimer):
        self.timer = timer

    def on_train_begin(self, args, state, control, **kwargs):
        self.timer.start()

    def on_train_end(self, args, state, control, **kwargs):
        self.timer.stop()

    def on_substep_end(self, args, state, control, **kwargs):
        self.timer.moved()

    def on_step_end(self, args, state, control, **kwargs):
        self.timer.step_done()


class PhaseReport(TrainerCallback):
    """Tells what the run is doing where no method of the Trainer does."""

    def __init__(self, phase: Phase):
        self.phase = phase

    def on_optimizer_begin(self, args, state, control, **kwargs):
        self.phase.name = OPTIMIZER
