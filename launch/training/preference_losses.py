"""The losses of preference tuning, of the log-probabilities of pairs of responses.

paddlenlp's own (transformers/dpo_criterion.py) averages over the pairs of a micro batch, so that what a pair weighs
depends on how a step is divided. Here each pair has a loss of its own, and a step is the mean over its pairs.
"""

from dataclasses import dataclass
from typing import Any

import paddle
import paddle.nn.functional as F
from paddlenlp.peft import LoRAModel

from data_tools.dialogues.encoding import IGNORED
from launch.methods.preference_flags import OF_MEANS, weights_of
from launch.training.data import TrainingData
from launch.training.losses import Loss
from launch.training.pipeline_pairs import cut, micro_batch
from launch.training.precomputed import Precomputed
from launch.training.reference import TokenLosses


@dataclass(frozen=True)
class Responses:
    """The log-probabilities of all chosen responses, then of all rejected ones, float32 [2 pairs].

    Attributes:
        sums: log-probabilities in nats.
        tokens: Their number; both 0 where a pair is padding.
    """

    sums: paddle.Tensor
    tokens: paddle.Tensor

    def scores(self, loss_type: str) -> paddle.Tensor:
        """Return the values that a loss compares: a sum or a mean over tokens.

        It is a mean in the papers of SimPO and ORPO and by the authors of IPO (see TRL's documentation of DPOTrainer).
        """
        return self.sums / self.tokens.clip(min=1.0) if loss_type in OF_MEANS else self.sums


def pair_losses(args: Any, policy: paddle.Tensor, reference: paddle.Tensor | None) -> paddle.Tensor:
    """Return the loss of each pair, float32 [pairs].

    Args:
        policy: Responses.scores, None without a reference.
        reference: Responses.scores, None without a reference.
        args: PreferenceArguments.
    """
    chosen, rejected = (policy if reference is None else policy - reference).chunk(2)
    beta = args.beta
    margin = beta * (chosen - rejected)
    match args.loss_type:
        case "sigmoid":  # DPO, arXiv 2305.18290, equation 7
            return _smoothed(margin, args.label_smoothing)
        case "simpo":  # arXiv 2405.14734, equation 6
            return _smoothed(margin - args.simpo_gamma, args.label_smoothing)
        case "hinge":  # SLiC-HF, arXiv 2305.10425, with the log-ratios of arXiv 2309.06657
            return F.relu(1 - margin)
        case "ipo":  # arXiv 2310.12036, equation 17; beta is its tau
            return (chosen - rejected - 1 / (2 * beta)) ** 2
        case "or":  # ORPO, arXiv 2403.07691, equations 4 and 7: of the odds, exp(s) / (1 - exp(s))
            return -F.log_sigmoid(chosen - rejected - _log_of_rest(chosen) + _log_of_rest(rejected))
    raise ValueError(args.loss_type)


def _smoothed(margin: paddle.Tensor, share: float) -> paddle.Tensor:
    """Return the smoothed loss.

    share: of pairs that are the wrong way round (conservative DPO: E. Mitchell, "A note on DPO with noisy preferences",
    equation 3).
    """
    loss = -F.log_sigmoid(margin)
    return loss if share == 0 else (1 - share) * loss - share * F.log_sigmoid(-margin)


def _log_of_rest(score: paddle.Tensor) -> paddle.Tensor:
    """Return log(1 - exp(score)), exact near 0, where a response is certain."""
    return paddle.log(-paddle.expm1(score.clip(max=-1e-20)))


def responses(losses: paddle.Tensor, labels: paddle.Tensor, pairs: paddle.Tensor | None) -> Responses:
    """Return the responses of losses.

    Args:
        losses: float32 [2 samples, length], -ln p of each token, 0 where its label is IGNORED.
        labels: Of collate_pairs (launch/training/preference_data.py).
        pairs: Of collate_pairs (launch/training/preference_data.py).
    """
    counted = (labels != IGNORED).astype("float32")
    if pairs is None:
        return Responses(-losses.sum(axis=1), counted.sum(axis=1))
    # Not by a scattered addition, whose order is not the same every time on a card, nor by a product of matrices, which
    # a card may round to TF32.
    own = pairs.astype("float32")
    halves = zip(losses.chunk(2), own.chunk(2), strict=True)
    sums = [(place * part.unsqueeze(-1)).sum(axis=[0, 1]) for part, place in halves]
    tokens = [place.sum(axis=[0, 1]) for place in own.chunk(2)]
    return Responses(-paddle.concat(sums), paddle.concat(tokens))


class PairLoss(Loss):
    """The mean over the pairs of a step, and measures that are means over pairs. unit: what is judged.

    Attributes:
        summed: The names of the sums that `metrics` divides, where pipelines can compute them.
    """

    of_text = False
    unit = "pairs"
    summed: tuple[str, ...] = ()

    def __init__(self, data: TrainingData, training_args):
        self.data = data
        self.micro_batches = training_args.gradient_accumulation_steps * training_args.dataset_world_size
        # Ranks that share a data rank see the same pairs.
        self.copies = training_args.world_size // training_args.dataset_world_size
        self.stages = max(training_args.pipeline_parallel_degree, 1)
        self.divisor = 1.0
        self.sums: paddle.Tensor | None = None  # of the steps since the last record
        self.found: paddle.Tensor | None = None  # of the batch that is evaluated

    def start_step(self, global_step: int) -> None:
        """Set the divisor of a step: its pairs or responses."""
        samples = self.data.stream.samples_of_step(global_step)
        self.divisor = int(self.data.train.counted[samples].sum()) / self.micro_batches

    def start_evaluation(self) -> None:
        """Set the divisor of an evaluation."""
        self.divisor = 1.0

    def of_batch(self, loss: paddle.Tensor, sums: paddle.Tensor, outcome: paddle.Tensor, return_outputs: bool) -> Any:
        """Return the result of __call__.

        Args:
            loss: The sum over the pairs of a batch.
            sums: That `metrics` divides, float64.
            outcome: Of the model, from which they follow.
            return_outputs: Of __call__.
        """
        if paddle.is_grad_enabled():
            self.sums = sums if self.sums is None else self.sums + sums
        else:
            self.found = sums if self.found is None else self.found + sums
        loss = loss / self.divisor
        return (loss, (loss, outcome)) if return_outputs else loss

    def batch_sums(self, trainer, model, inputs: dict) -> list[float]:
        """Return the sums of a batch."""
        self.start_evaluation()
        self.found = None
        if self.stages > 1:
            trainer.prediction_step(model, inputs, prediction_loss_only=True)
        else:
            with paddle.no_grad(), trainer.autocast_smart_context_manager():
                self(model, trainer._prepare_inputs(inputs), return_outputs=False)
        return self._of_every_rank(self.found).tolist()

    def _of_every_rank(self, sums: paddle.Tensor | None) -> Any:
        """Return a tensor whose mean over the ranks that share a data rank is right.

        In a pipeline only the last stage's ranks have sums.
        """
        if sums is None:
            return paddle.zeros([len(self.summed)], dtype="float64")
        return sums * self.stages

    def interval(self) -> dict:
        """Return the means of an interval."""
        sums, self.sums = self._of_every_rank(self.sums), None
        if paddle.distributed.get_world_size() > 1:
            paddle.distributed.all_reduce(sums)
        means = self.metrics((sums / self.copies).tolist())
        del means["loss"], means[self.unit]  # of the Trainer
        return means


class PreferenceLoss(PairLoss):
    """The loss of preference tuning.

    Attributes:
        args: PreferenceArguments.
        reference: Of launch/training/reference.py or precomputed.py; None: the loss needs none. judged_by: the key
            of a batch with the judgement.
    """

    judged_by = "pairs"
    summed = (
        *("loss", "pairs", "rewards_chosen", "rewards_rejected", "accuracy"),
        *("logps_chosen", "logps_rejected", "tokens_chosen", "tokens_rejected", "kl"),
    )

    def __init__(self, args, reference, data: TrainingData, training_args):
        super().__init__(data, training_args)
        self.args, self.reference = args, reference
        self.accumulation = training_args.gradient_accumulation_steps
        self.weights = weights_of(args)
        self.may_rest = args.loss_type == "hinge"  # 0 for each pair whose margin is wide enough

    def attach(self, model, args) -> None:
        """Attach the loss to a model."""
        super().attach(model, args)
        if self.head:
            self.head.weighed = True
        self.token_losses = TokenLosses(model)
        if self.stages > 1:
            layers = model.model if isinstance(model, LoRAModel) else model
            layers._loss_fn = [self.of_last_stage]

    def training_inputs(self, inputs: dict) -> dict:
        """Return the micro batch as a pipeline takes it."""
        return micro_batch(inputs)

    def evaluation_inputs(self, inputs: dict) -> list[dict]:
        """Return the micro batches of a batch of evaluation."""
        return [micro_batch(part) for part in cut(inputs, self.accumulation)]

    def prepare(self, trainer) -> None:
        """Compute the reference's values where they are precomputed."""
        if isinstance(self.reference, Precomputed):
            self.reference.prepare(trainer)

    def __call__(self, model, inputs: dict, return_outputs: bool):
        """Return the loss of a batch."""
        labels, judged = inputs.pop("labels"), inputs.pop(self.judged_by, None)
        baseline = self.reference(inputs, labels) if self.reference else None
        losses = self.token_losses(model, inputs, labels)
        with paddle.amp.auto_cast(False):
            loss, sums = self.compared(losses, baseline, labels, judged)
        return self.of_batch(loss, sums, losses, return_outputs)

    def of_last_stage(self, outputs: paddle.Tensor, read: list[paddle.Tensor | None]) -> paddle.Tensor:
        """Return the criterion of a pipeline.

        Args:
            outputs: Of its last layer.
            read: Of micro_batch.
        """
        labels, pairs, baseline = read
        assert labels is not None
        losses = self.token_losses.of_last_stage(outputs, labels)
        with paddle.amp.auto_cast(False):
            loss, sums = self.compared(losses, baseline, labels, pairs)
        return self.of_batch(loss, sums, losses, return_outputs=False)

    def compared(
        self, losses: paddle.Tensor, baseline: paddle.Tensor | None, labels: paddle.Tensor, pairs: paddle.Tensor | None
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return (the sum of the losses of all pairs, the sums that `metrics` divides, float64).

        Args:
            losses: -ln p of each token by policy and reference.
            baseline: -ln p of each token by policy and reference.
            labels: Of the batch.
            pairs: Of the batch.
        """
        args = self.args
        policy = responses(losses, labels, pairs)
        scores, before = policy.scores(args.loss_type), None
        if baseline is not None:
            before = responses(baseline, labels, pairs).scores(args.loss_type)
        there = (policy.tokens.chunk(2)[0] > 0).astype("float32")
        of_pairs, of_chosen = self.weights
        each = of_pairs * pair_losses(args, scores, before)
        if of_chosen:  # length-normalised, as ORPO has it and DPO with a term of its own (arXiv 2404.19733, equation 4)
            each = each - of_chosen * (policy.sums / policy.tokens.clip(min=1.0)).chunk(2)[0]
        loss = (each * there).sum()
        with paddle.no_grad():
            rewards = args.beta * (scores if before is None else scores - before)
            sums = [loss, there.sum()]
            sums += [(part * there).sum() for part in rewards.chunk(2)]
            sums += [((rewards.chunk(2)[0] > rewards.chunk(2)[1]).astype("float32") * there).sum()]
            sums += [part.sum() for one in (policy.sums, policy.tokens) for part in one.chunk(2)]
            sums += [paddle.zeros([]) if baseline is None else divergence(losses, baseline).sum()]
            return loss, paddle.stack([one.detach().astype("float64") for one in sums])

    def metrics(self, sums: list[float]) -> dict:
        """Return means over pairs, of lengths in tokens; kl: nats a token.

        accuracy: the share of pairs whose chosen response has the higher reward.
        """
        found = dict(zip(self.summed, sums, strict=True))
        pairs, kl = found.pop("pairs"), found.pop("kl")
        found["rewards_margin"] = found["rewards_chosen"] - found["rewards_rejected"]
        means = {name: value / pairs for name, value in found.items()}
        if self.reference:
            means["kl"] = kl / (found["tokens_chosen"] + found["tokens_rejected"])
        return means | {self.unit: int(pairs)}

    def likelihoods(self, record: dict) -> tuple[float, float]:
        """Return the likelihoods for PairWatch.

        They are relative to the reference, where there is one: then they do not depend on the batch.
        """
        sides = ("chosen", "rejected")
        if self.reference is None:
            chosen, rejected = (record[f"logps_{side}"] / record[f"tokens_{side}"] for side in sides)
        else:
            tokens = [1 if self.args.loss_type in OF_MEANS else record[f"tokens_{side}"] for side in sides]
            chosen, rejected = (
                record[f"rewards_{side}"] / self.args.beta / count for side, count in zip(sides, tokens, strict=True)
            )
        return chosen, rejected


def divergence(losses: paddle.Tensor, baseline: paddle.Tensor) -> paddle.Tensor:
    """Return of each token an estimate of KL(reference | policy) in nats that is never negative.

    It is r - 1 - ln r with r = policy / reference (J. Schulman, "Approximating KL divergence", k3): its mean is right
    for responses that the reference wrote.
    """
    logarithm = (baseline - losses).clip(max=20.0)  # beyond it nothing can be read from the sum
    return paddle.expm1(logarithm) - logarithm
