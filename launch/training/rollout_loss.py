"""The losses of reinforcement, of answers that the model has sampled itself (launch/training/rollouts.py).

The probabilities are those of the distribution that tokens were sampled from: at the temperature, and among the ids
that top_k and top_p have left then. So before the first update of a rollout each ratio is 1, but for rounding.
"""

import math
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from data_tools.dialogues.encoding import IGNORED
from launch.checkpoint.ranks import gather
from launch.errors import UserError
from launch.methods.reinforcement import SUM, TOKEN, Algorithm
from launch.training.losses import Loss
from launch.training.preference_losses import divergence
from launch.training.reference import TokenLosses
from launch.training.rollouts import AnswerGroup, Rollouts

FAR = 1e-5  # in ln(ratio): what float32 leaves of equal probabilities
LARGEST = 20.0  # ln(ratio) beyond which nothing can be read from a ratio
SILENT, TRUNCATED = 0.8, 0.5  # shares of groups and answers that a warning is for
COLLAPSED = 0.02  # nats a token, of which a model that tries answers has tenths
LONGER = 2.0  # times the tokens of the first answers


class SampledLosses:
    """-ln p of tokens by the distribution that they were sampled from.

    Attributes:
        temperature: Of the sampling.
        known_ids: Only ids below it are sampled.
        kept: int64 [tokens, most]: the ids that each token of the batch was drawn from, then -1; None: all.
    """

    def __init__(self, temperature: float, known_ids: int):
        self.temperature, self.known_ids = temperature, known_ids
        self.kept: paddle.Tensor | None = None

    def __call__(self, logits: paddle.Tensor, labels: paddle.Tensor, part: slice) -> paddle.Tensor:
        """Return float32 [tokens, 1], 0 where the label is IGNORED.

        Args:
            logits: float32 [tokens, vocabulary].
            labels: int64 [tokens].
            part: Of the batch's tokens, these.
        """
        logits = logits[:, : self.known_ids]
        logits = logits if self.temperature == 1 else logits / self.temperature
        if self.kept is None:
            return F.cross_entropy(logits, labels.unsqueeze(-1), ignore_index=IGNORED, reduction="none")
        kept = self.kept[part]
        left = paddle.take_along_axis(logits, kept.clip(min=0), axis=1).astype("float64")
        left = left + (kept < 0).astype("float64") * -1e30
        chosen = paddle.take_along_axis(logits, labels.clip(min=0).unsqueeze(-1), axis=1).astype("float64")
        losses = (paddle.logsumexp(left, axis=-1, keepdim=True) - chosen).astype("float32")
        return losses * (labels != IGNORED).astype("float32").unsqueeze(-1)


class SampledTokenLosses(TokenLosses):
    """-ln p of the tokens of a batch by a model, as SampledLosses has them. losses: of the run."""

    def __init__(self, model, losses: SampledLosses):
        super().__init__(model)
        self.losses = losses
        if self.head:
            self.head.sampled, self.head.weighed = losses, True

    def of_logits(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """Return float32 [rows, length]."""
        if logits.shape[-1] == 1:
            return logits.squeeze(-1)
        tokens = logits.shape[0] * logits.shape[1]
        with paddle.amp.auto_cast(False):
            flat = logits.astype("float32").reshape([tokens, -1])
            return self.losses(flat, labels.flatten(), slice(0, tokens)).reshape(labels.shape)


def objectives(
    algorithm: Algorithm, ratios: paddle.Tensor, counted: paddle.Tensor, advantages: paddle.Tensor, clip
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return (the loss of each token or answer, whether its ratio is clipped), float32 [rows, length or 1].

    Args:
        algorithm: Of ALGORITHMS.
        ratios: In logarithms, float32 [rows, length], 0 outside of answers.
        counted: Float32 [rows, length], 1 for tokens of answers.
        advantages: Float32 [rows, 1].
        clip: How far a ratio may fall below 1 and rise above it.
    """
    if algorithm.ratio != TOKEN:
        tokens = 1.0 if algorithm.ratio == SUM else counted.sum(axis=1, keepdim=True).clip(min=1.0)
        ratios = ratios.sum(axis=1, keepdim=True) / tokens
    ratios = paddle.exp(ratios.clip(max=LARGEST))
    low, high = clip
    free, held = ratios * advantages, ratios.clip(1 - low, 1 + high) * advantages
    return -paddle.minimum(free, held), (held < free).astype("float32")


class RolloutLoss(Loss):
    """The loss of reinforcement.

    Attributes:
        rollouts: That its batches come from.
        reference: Of launch/training/reference.py, or the teacher; None without --kl_weight and --teacher.
        clip: As in objectives().
        largest_gap: Of ln(ratio) before the first update of a rollout.
        distils: The reference is a teacher, whose ln p above the sampler's is a token's advantage.
        first_tokens: Of an answer, on average, in the first record since the start.
    """

    of_text = False
    may_rest = True
    first_tokens = 0.0

    def __init__(
        self,
        rollouts: Rollouts,
        token_losses: SampledTokenLosses,
        reference,
        clip,
        kl_weight,
        largest_gap,
        distils: bool = False,
    ):
        self.rollouts, self.token_losses, self.reference = rollouts, token_losses, reference
        self.clip, self.kl_weight, self.largest_gap, self.distils = clip, kl_weight, largest_gap, distils
        self._forget()

    def _forget(self) -> None:
        self.sums = np.zeros(4)  # tokens, clipped ones, -ln p, divergence
        self.gaps: list[np.ndarray] = []  # |ln(ratio)| before first updates
        self.largest_ratio = 0.0

    def prepare(self, trainer) -> None:
        """Give the rollouts their trainer."""
        self.rollouts.trainer = trainer

    def state(self, global_step: int) -> Any:
        """Return the rollout that steps to come learn from."""
        return self.rollouts.state(global_step)

    def restore(self, state: Any) -> None:
        """Take over the rollout of a checkpoint."""
        self.rollouts.restore(state)

    def __call__(self, model, inputs: dict, return_outputs: bool):
        """Return the loss of a batch of Rollouts."""
        labels, sampled = inputs.pop("labels"), inputs.pop("logps")
        weights, advantages = inputs.pop("weights"), inputs.pop("advantages")
        kept, is_first = inputs.pop("kept", None), inputs.pop("is_first", False)
        sampled_losses = self.token_losses.losses
        sampled_losses.kept = None if kept is None else kept.reshape([-1, kept.shape[-1]])
        baseline = self.reference(inputs, labels) if self.reference else None
        losses = self.token_losses(model, inputs, labels)
        with paddle.amp.auto_cast(False):
            counted = (labels != IGNORED).astype("float32")
            ratios = (-losses - sampled) * counted
            apart = None if baseline is None else divergence(baseline, losses) * counted
            if self.distils:
                apart = sampled + baseline  # of the reverse KL: the sampler's ln p above the teacher's
                advantages = -apart
            each, clipped = objectives(self.rollouts.algorithm, ratios, counted, advantages, self.clip)
            each = each if apart is None or self.distils else each + self.kl_weight * apart
            loss = (each * weights).sum()
        if paddle.is_grad_enabled():
            self._note(ratios, counted, clipped, losses, apart, is_first)
        return (loss, (loss, losses)) if return_outputs else loss

    @paddle.no_grad()
    def _note(self, ratios, counted, clipped, losses, apart, is_first: bool) -> None:
        """Note the measures of a batch, and stop where sampler and trainer disagree."""
        gaps = paddle.abs(ratios).numpy()[counted.numpy() > 0]
        largest = float(gaps.max(initial=0.0))
        sums = [
            counted.sum(),
            (clipped * counted).sum(),
            losses.sum(),
            paddle.zeros([]) if apart is None else apart.sum(),
        ]
        self.sums += [float(one) for one in sums]
        self.largest_ratio = max(self.largest_ratio, largest)
        if not is_first:
            return
        self.gaps.append(gaps)
        if not largest <= self.largest_gap:
            raise UserError(
                f"sampler and trainer disagree: |ln(ratio)| of a token is {largest:.3g} before the first update, "
                f"--max_log_ratio allows {self.largest_gap:g}. Half precision rounds differently in both: float32 "
                "(--precision fp32), a smaller --temperature, or a larger --max_log_ratio."
            )

    # ---- measures

    def interval(self) -> dict:
        """Return the measures of the steps since the last record."""
        groups, rollouts = self.rollouts.seen, self.rollouts
        gathered = gather((self.sums, np.concatenate(self.gaps) if self.gaps else np.zeros(0), self.largest_ratio))
        tokens, clipped, entropy, apart = np.sum([sums for sums, *_ in gathered], axis=0)
        gaps = np.concatenate([gaps for _, gaps, _ in gathered])
        found = measures(groups, self.distils) | {
            "entropy": entropy / max(tokens, 1),
            "clipped": clipped / max(tokens, 1),
            "largest_log_ratio": max(largest for *_, largest in gathered),
        }
        if len(gaps):
            found |= {"largest_gap": float(gaps.max()), "far_gaps": float((gaps > FAR).mean())}
        if self.reference:
            found["reverse_kl" if self.distils else "kl"] = apart / max(tokens, 1)
        if rollouts.seconds:
            found["sampled_tokens_per_second"] = rollouts.sampled_tokens / rollouts.seconds
        if rollouts.redraws:
            found["redrawn_groups"] = rollouts.redrawn
        self.first_tokens = self.first_tokens or found.get("answer_tokens", 0.0)
        rollouts.seen, rollouts.sampled_tokens, rollouts.seconds, rollouts.redrawn = [], 0, 0.0, 0
        self._forget()
        return found

    def warning(self, record: dict) -> str | None:
        """Return a warning about a record, with what helps."""
        faults = self.rollouts.rewards.faults
        if record.get("failed_rewards") and faults:
            name, reason = next(iter(faults.items()))
            return f"{record['failed_rewards']} rewards failed and count as 0, the first of {name}: {reason}"
        high = self.distils or record.get("reward", 1.0) > 0.5
        if record.get("entropy", 1.0) < COLLAPSED and not high:
            return (
                f"entropy {record['entropy']:.3f}: the model no longer tries other answers, at a reward of "
                f"{record['reward']:.3f}. From an earlier checkpoint: a smaller --learning_rate, --kl_weight 0.05, "
                "--clip_high 0.28, or a larger --temperature"
            )
        if record.get("silent_groups", 0) > SILENT:
            cure = "harder prompts" if high else "easier prompts, a partial reward, or fine-tuning first"
            return (
                f"{record['silent_groups']:.0%} of the groups have answers that are all worth the same, from which "
                f"nothing is learned: {cure}; a larger --group_size or --temperature"
            )
        if record.get("truncated", 0) > TRUNCATED:
            return (
                f"{record['truncated']:.0%} of the answers reach the largest length: a larger --max_length, "
                "a length reward, or --mask_truncated 1"
            )
        if self.first_tokens and record.get("answer_tokens", 0) > LONGER * self.first_tokens:
            return (
                f"answers have {record['answer_tokens']:.0f} tokens, {self.first_tokens:.0f} at first: if they need "
                "not be longer, a length reward (0.9 number 0.1 length:TOKENS), or --algorithm dr_grpo"
            )
        return None

    def batch_sums(self, trainer, model, inputs: dict) -> list[float]:
        """Return [reward, answers, tokens, truncated answers] of the most likely answers to some prompts."""
        self.prepare(trainer)
        found = self.rollouts.greedy(inputs["prompts"])
        answers = [answer for answer, _ in found]
        return [
            sum(worth.total for _, worth in found),
            len(found),
            sum(len(answer.ids) for answer in answers),
            sum(not answer.ended for answer in answers),
        ]

    def metrics(self, sums: list[float]) -> dict:
        """Return means over answers. The loss is minus the reward, so that the lowest is the best."""
        reward, answers, tokens, truncated = sums
        mean = reward / answers
        return {
            "loss": -mean,
            "reward": mean,
            "truncated": truncated / answers,
            "tokens": tokens / answers,
            "answers": int(answers),
        }


def measures(groups: list[AnswerGroup], distils: bool = False) -> dict:
    """Return the measures of groups: rewards in all and by kind, lengths, groups without signal.

    distils: the signal is a teacher's, rewards are measured alone, if there are any.
    """
    worth = [one for group in groups for one in group.worth]
    answers = [answer for group in groups for answer in group.answers]
    if not worth:
        return {"reward": math.nan}
    found = {
        "answer_tokens": float(np.mean([len(answer.ids) for answer in answers])),
        "truncated": float(np.mean([not answer.ended for answer in answers])),
        "failed_rewards": sum(one.failed for one in worth),
    }
    if worth[0].parts:
        found["reward"] = float(np.mean([one.total for one in worth]))
    if not distils:
        found["silent_groups"] = float(np.mean([group.silent for group in groups]))
    names = worth[0].parts if len(worth[0].parts) > 1 else ()
    return found | {f"reward_{name}": float(np.mean([one.parts[name] for one in worth])) for name in names}
