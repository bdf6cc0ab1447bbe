"""The losses of reinforcement for test_reinforcement.py."""

from types import SimpleNamespace

import numpy as np
import paddle
import paddle.nn.functional as F

from launch.errors import UserError
from launch.generation.sampler import SampledAnswer
from launch.methods.reinforcement import ALGORITHMS
from launch.training.model import open_tokenizer
from launch.training.reinforcement_tuning import require_tokenizer_of
from launch.training.rewarding import Worth
from launch.training.rollout_loss import RolloutLoss, SampledLosses, objectives
from launch.training.rollouts import AnswerGroup, advantages, token_weights


def step_of(name: str, ratios: list, lengths: list, totals: list, longest: int, cut: bool = True) -> dict:
    """Return the loss of a group of answers with these ln(ratio), and its gradient by each. cut: the last one is."""
    algorithm = ALGORITHMS[name]
    answers = [SampledAnswer([1] * length, ended=not cut or length != lengths[-1]) for length in lengths]
    group = AnswerGroup(0, 0, 0, [1], answers, [Worth({}, total, 0) for total in totals])
    [weights] = token_weights([group], algorithm, algorithm.masks_truncated, longest)
    counted = np.arange(len(ratios[0])) < np.array(lengths)[:, None]
    above = advantages(group.totals, algorithm)
    values = (ratios, counted, counted * np.array(weights)[:, None], above[:, None])
    ratios, counted, weights, worth = (paddle.to_tensor(np.array(one, dtype="float32")) for one in values)
    ratios.stop_gradient = False
    each, clipped = objectives(algorithm, ratios * counted, counted, worth, algorithm.clip)
    loss = (each * weights).sum()
    loss.backward()
    return {
        "loss": float(loss),
        "gradient": ratios.grad.tolist(),
        "clipped": clipped.tolist(),
        "advantages": above.tolist(),
    }


def distilled(student: list, old: list, teacher: list) -> dict:
    """Return the first loss of answers of one token by a teacher's logits, and its gradient by the student's.

    Each token is an answer and counts by its probability of being drawn, which is that of the old logits.
    """
    logits = [paddle.to_tensor(np.array([one] * len(one), dtype="float64")) for one in (student, old, teacher)]
    labels = paddle.arange(len(student)).unsqueeze(-1)
    logits[0].stop_gradient = False
    losses, sampled, others = (F.cross_entropy(one, labels, reduction="none") for one in logits)

    def token_losses(model, inputs: dict, labels) -> paddle.Tensor:
        return losses

    token_losses.losses = SimpleNamespace()
    rollouts = SimpleNamespace(algorithm=ALGORITHMS["grpo"])
    loss_of = RolloutLoss(rollouts, token_losses, lambda inputs, labels: others, (0.2, 0.2), 0.0, 9.0, distils=True)
    batch = {"labels": labels, "logps": -sampled, "weights": paddle.exp(-sampled), "advantages": None}
    loss = loss_of(None, batch, False)
    loss.backward()
    return {"loss": float(loss), "gradient": logits[0].grad.sum(axis=0).tolist(), "apart": loss_of.sums[3]}


def tokenizer_of_a_teacher(folder: str) -> str:
    """Return the refusal of a teacher that has two tokens of the model's in each other's places."""
    tokenizer = open_tokenizer("model_name_or_path", folder)
    require_tokenizer_of(folder, tokenizer)
    ids = tokenizer.get_vocab()
    one, two = list(ids)[300:302]
    try:
        require_tokenizer_of(folder, SimpleNamespace(get_vocab=lambda: ids | {one: ids[two], two: ids[one]}))
    except UserError as error:
        return str(error)
    return ""


def sampled_losses(logits: list, labels: list, kept: list, temperature: float, known: int) -> list:
    """Return -ln p of each label. kept: [] for all ids."""
    losses = SampledLosses(temperature, known)
    losses.kept = paddle.to_tensor(np.array(kept, dtype="int64")) if kept else None
    logits, labels = paddle.to_tensor(np.array(logits, dtype="float32")), paddle.to_tensor(np.array(labels))
    return losses(logits, labels, slice(0, len(labels))).flatten().tolist()


def stops(gap: float, is_first: bool) -> str:
    """Return what stops a run whose first ratio is so far from 1, "" where it goes on. --max_log_ratio is 0.01."""
    one = paddle.ones([1, 1])
    try:
        RolloutLoss(SimpleNamespace(), None, None, None, 0.0, 0.01)._note(gap * one, one, one, one, None, is_first)
    except UserError as error:
        return str(error)
    return ""


def warning(record: dict) -> str | None:
    """Return the warning about a record, where a reward has failed once."""
    rollouts = SimpleNamespace(rewards=SimpleNamespace(faults={"mine": "KeyError: 'a'"}))
    loss = RolloutLoss(rollouts, None, None, None, 0.0, 0.01)
    loss.first_tokens = 20.0
    return loss.warning(record)
