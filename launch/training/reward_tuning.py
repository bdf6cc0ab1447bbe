"""Training a reward model: pairs of responses to the same prompt, of which the chosen one shall get the higher score.

A score is of the last token of a response, with all that is before it (launch/models/reward_model.py).
"""

import paddle
import paddle.nn.functional as F

from launch.methods.rewards import REWARDS
from launch.training.data import TrainingData
from launch.training.preference_losses import PairLoss
from launch.training.preference_tuning import PairTraining


class RewardTuning(PairTraining):
    """Training of a reward model."""

    method = REWARDS

    def make_loss(self, model, data: TrainingData) -> "RewardLoss":
        """Return the loss of a reward model."""
        return RewardLoss(data, self.training_args)


def reward_losses(scores: paddle.Tensor) -> paddle.Tensor:
    """Return float32 [pairs]: -ln of the probability that the chosen response is the better one.

    Bradley-Terry; InstructGPT, arXiv 2203.02155, equation 1.

    Args:
        scores: [2 pairs], of all chosen responses, then of the rejected ones.
    """
    chosen, rejected = scores.chunk(2)
    return -F.log_sigmoid(chosen - rejected)


class RewardLoss(PairLoss):
    """The loss of a reward model."""

    def __call__(self, model, inputs: dict, return_outputs: bool):
        """Return the loss of a batch."""
        tokens = inputs.pop("tokens")
        scores = model(**inputs)
        with paddle.amp.auto_cast(False):
            there = (tokens.chunk(2)[0] > 0).astype("float32")
            loss = (reward_losses(scores) * there).sum()
        with paddle.no_grad():
            chosen, rejected = scores.chunk(2)
            right = ((chosen > rejected).astype("float32") * there).sum()
            parts = [loss, there.sum(), (chosen * there).sum(), (rejected * there).sum(), right]
            parts += [part.sum() for part in tokens.chunk(2)]
            sums = paddle.stack([part.detach().astype("float64") for part in parts])
        return self.of_batch(loss, sums, scores, return_outputs)

    def metrics(self, sums: list[float]) -> dict:
        """Return means over pairs, of lengths in tokens.

        accuracy: the share of pairs whose chosen response has the higher score.
        """
        loss, pairs, chosen, rejected, right, tokens_chosen, tokens_rejected = sums
        found = {
            "loss": loss,
            "rewards_chosen": chosen,
            "rewards_rejected": rejected,
            "rewards_margin": chosen - rejected,
            "accuracy": right,
            "tokens_chosen": tokens_chosen,
            "tokens_rejected": tokens_rejected,
        }
        return {name: value / pairs for name, value in found.items()} | {"pairs": int(pairs)}
