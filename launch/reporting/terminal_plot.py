"""The loss curve of a run in the terminal. No Paddle here."""

import sys

import plotext

from data_tools.terminal import WIDTH, has_colours, sign

HEIGHT = 18  # lines
PLAIN_FRAME = str.maketrans("─│┌┐└┘├┤┬┴┼", "-|+++++++++")


def plot_losses(records: list[dict]) -> None:
    """Draw training and evaluation loss over steps on stdout, in colours where it has them."""
    dots = sign("⣿", "", sys.stdout)
    train = [record for record in records if "loss" in record]
    evaluation = [record for record in records if "eval_loss" in record]
    plotext.clear_figure()
    plotext.plot_size(WIDTH, HEIGHT)
    plotext.plot(
        [record["global_step"] for record in train],
        [record["loss"] for record in train],
        label="training loss",
        marker="braille" if dots else "*",
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
    if not has_colours(sys.stdout):
        picture = plotext.uncolorize(picture)
    if not dots:
        picture = picture.translate(PLAIN_FRAME)
    print(picture, flush=True)
