"""The loss curve of a run in the terminal. No Paddle here."""

import os
import sys

import plotext


def plot_losses(records: list[dict], width: int = 80, height: int = 18) -> None:
    """Draw training and evaluation loss over steps, in colours only on a terminal that wants them."""
    train = [record for record in records if "loss" in record]
    evaluation = [record for record in records if "eval_loss" in record]
    plotext.clear_figure()
    plotext.plot_size(width, height)
    plotext.plot(
        [record["global_step"] for record in train],
        [record["loss"] for record in train],
        label="training loss",
        marker="braille",
    )
    if evaluation:
        plotext.scatter(
            [record["global_step"] for record in evaluation],
            [record["eval_loss"] for record in evaluation],
            label="evaluation loss",
            marker="o",
        )
    plotext.xlabel("step")
    picture = plotext.build()
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        picture = plotext.uncolorize(picture)
    print(picture, flush=True)
