"""The loss of KTO (--loss_type kto, arXiv 2402.01306), of single responses that are desired or not.

It asks whether a response became likelier by more than z0, the policy's distance from its reference, which responses to
other prompts tell. z0 changes each loss, so that it has to be the same for all micro batches of a step: paddlenlp's
(transformers/kto_criterion.py), the authors' and TRL's is of the micro batches that are computed at one time, and what
a run learns depends on how its steps are divided. Here it is that of the whole step, known before the first micro
batch from a pass without gradients.
"""

from collections.abc import Callable, Iterable
from typing import Any

import paddle
import paddle.nn.functional as F

from launch.training.batches import PaddedDataset
from launch.training.data import evaluation_batches
from launch.training.preference_data import unrelated
from launch.training.preference_losses import PreferenceLoss, responses

SIDES = ("chosen", "rejected")  # as measures of pairs are named: desired and undesired responses


def kto_losses(args: Any, ratios: paddle.Tensor, desired: paddle.Tensor, distance: paddle.Tensor) -> paddle.Tensor:
    """Return float32 [responses]: equation 8, with the value of equation 7.

    Args:
        ratios: Ln of policy / reference, float32 [responses].
        desired: Bool [responses].
        distance: z0 in nats.
        args: PreferenceArguments.
    """
    gains = args.beta * (ratios - distance)
    good = args.desirable_weight * F.sigmoid(-gains)  # 1 - sigmoid(x) is sigmoid(-x)
    return paddle.where(desired, good, args.undesirable_weight * F.sigmoid(gains))


class KtoLoss(PreferenceLoss):
    """The mean over the responses of a step.

    distance: z0 in nats, float32 [], of the last step or of all that was evaluated last; None where it is to be
    measured before the next batch.
    """

    unit = "responses"
    judged_by = "desired"
    likelihoods: Any = None  # a record may lack responses of a kind

    def attach(self, model, args) -> None:
        """Attach the loss to a model."""
        super().attach(model, args)
        self.model, self.step = model, -1
        self.distance: paddle.Tensor | None = paddle.zeros([])

    def start_step(self, global_step: int) -> None:
        """Forget z0 where a step begins."""
        super().start_step(global_step)
        if global_step != self.step:
            self.step, self.distance = global_step, None

    def prepare_evaluation(self, trainer, dataset) -> None:
        """Measure z0 for an evaluation."""
        batches = evaluation_batches(dataset, trainer.args)
        with trainer.autocast_smart_context_manager():
            self.distance = self.measured(dataset, batches, trainer.watches.hang_timer.moved)
        self.step = -1

    def __call__(self, model, inputs: dict, return_outputs: bool):
        """Return the loss of a batch."""
        if self.distance is None:
            self.distance = self.measured(self.data.train, self.data.stream.batches_of_step(self.step))
        return super().__call__(model, inputs, return_outputs)

    @paddle.no_grad()
    def measured(
        self, dataset: Any, batches: Iterable[list[int | None]], moved: Callable[[], None] = lambda: None
    ) -> paddle.Tensor:
        """Return z0 as section 4.1 estimates it: the mean log-ratio of unrelated responses, at least 0.

        All ranks call it together.

        Args:
            dataset: Of the batches.
            batches: Of this data rank, equally many on all.
            moved: Called after each.
        """
        samples = PaddedDataset(dataset, self.data.padding)
        found = paddle.zeros([2], dtype="float64")  # the sum, and how many
        for batch in batches:
            arrays = self.data.collate([unrelated(samples[number]) for number in batch])
            inputs = {name: paddle.to_tensor(array) for name, array in arrays.items()}
            labels, _ = inputs.pop("labels"), inputs.pop(self.judged_by)
            baseline = self.reference(inputs, labels)
            ratios = (baseline - self.token_losses(self.model, inputs, labels)).sum(axis=1).astype("float64").sum()
            counted = paddle.full([], sum(number is not None for number in batch), dtype="float64")
            found += paddle.stack([ratios, counted])
            moved()
        if paddle.distributed.get_world_size() > 1:
            paddle.distributed.all_reduce(found)
        return (found[0] / found[1]).clip(min=0).astype("float32")

    def compared(
        self, losses: paddle.Tensor, baseline: paddle.Tensor | None, labels: paddle.Tensor, desired: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return as PreferenceLoss does. desired: of collate_desired (launch/training/preference_data.py)."""
        assert baseline is not None and self.distance is not None, "KTO has a reference, and z0 was measured"
        policy = responses(losses, labels, None)
        ratios = policy.sums - responses(baseline, labels, None).sums
        there = policy.tokens > 0
        loss = (kto_losses(self.args, ratios, desired, self.distance) * there.astype("float32")).sum()
        with paddle.no_grad():
            count = there.astype("float32").sum()
            right = ((ratios > self.distance) == desired).logical_and(there)
            sums = [loss, count, self.distance * count, right.astype("float32").sum()]
            for side in (desired, desired.logical_not()):
                counted = side.logical_and(there).astype("float32")
                sums += [counted.sum()]
                sums += [(each * counted).sum() for each in (self.args.beta * ratios, policy.sums, policy.tokens)]
            return loss, paddle.stack([one.detach().astype("float64") for one in sums])

    def metrics(self, sums: list[float]) -> dict:
        """Return means over responses; kl: z0.

        accuracy: the share of responses that z0 classifies correctly: desired ones have a larger log-ratio. Means
        without a response are left out.
        """
        loss, count, distance, right, *sides = sums
        means = {"loss": loss / count, "accuracy": right / count, "kl": distance / count, "desired": sides[0] / count}
        for name, (number, *found) in zip(SIDES, (sides[:4], sides[4:]), strict=True):
            if number:
                measures = (f"{measure}_{name}" for measure in ("rewards", "logps", "tokens"))
                means |= {measure: value / number for measure, value in zip(measures, found, strict=True)}
        if 0 < means["desired"] < 1:
            means["rewards_margin"] = means["rewards_chosen"] - means["rewards_rejected"]
        return means | {self.unit: int(count)}
