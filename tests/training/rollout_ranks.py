"""The losses of reinforcement for test_reinforcement.py."""

from types import SimpleNamespace

import numpy as np
import paddle

from launch.errors import UserError
from launch.generation.sampler import SampledAnswer
from launch.methods.reinforcement import ALGORITHMS
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
