"""The watches of a run, from its flags."""

from launch.training.ranks import broadcast
from launch.watch.callbacks import LossReport
from launch.watch.loss import Limits, parse_window


def watches(training_args, random_weights_loss: float | None = None) -> list:
    """Callbacks. random_weights_loss: what random weights give at first, None for trained ones.

    Raises UserError for values that cannot be.
    """
    limits = Limits(
        first_loss=parse_window(training_args.loss_first, random_weights_loss),
        collapse=training_args.loss_collapse,
        spike=training_args.loss_spike,
        overflows=training_args.fp16,
        on_cpu=training_args.device == "cpu",
    )
    return [LossReport(limits, broadcast)] if training_args.loss_watch else []
