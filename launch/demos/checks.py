"""What must be true of the demo's model, with the bound and the reason of each."""

from pathlib import Path

from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.preflight.report import Finding

# Natural text spreads around the closed form by a per cent or two: frequent tokens share one random row of the head.
FIRST_LOSS_TOLERANCE = 0.03
# A model that has learnt only how frequent each token is reaches the unigram cross-entropy and no less.
HELD_OUT_MARGIN_NATS = 1.5


def first_loss_check(first_loss: float, model: Path | str) -> Finding:
    """The loss before the first update lies where random weights put it: ln V + h sigma^2 / 2, within 3 %."""
    expected = ModelShape.from_config(load_config(str(model))).first_loss
    deviation = first_loss / expected - 1
    ok = abs(deviation) <= FIRST_LOSS_TOLERANCE
    return Finding(
        ok=ok,
        subject="first loss",
        found=f"{first_loss:.3f}, expected ln V + h sigma^2/2 = {expected:.3f} ({deviation:+.2%}, allowed 3 %)",
        fix="" if ok else "weights, labels or loss are not what they should be: no step has been made yet",
    )


def held_out_check(held_out_loss: float, unigram: float) -> Finding:
    """The model predicts unseen text better than token frequencies alone could, by at least 1.5 nats a token."""
    margin = unigram - held_out_loss
    ok = margin >= HELD_OUT_MARGIN_NATS
    return Finding(
        ok=ok,
        subject="held-out loss",
        found=f"{held_out_loss:.3f}, {margin:.2f} nats below the unigram cross-entropy {unigram:.3f} (needed: 1.5)",
        fix="" if ok else "train longer (--max_steps), or the labels do not belong to the inputs",
    )
