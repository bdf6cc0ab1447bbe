"""run_dpo.py --loss_type kto: the loss by the formula of its paper, z0 of whole steps, what is logged."""

import json

import numpy as np
import pytest

from tests.distributed.cells import KTO, LORA, PAIRS
from tests.runs import FEW_PREFERENCES

RANKS = "tests.training.preference_ranks"
# Desired responses weigh more, so that all responses become likelier, and z0 is above 0.
WEIGHTS = KTO | {"learning_rate": 1e-2}


def by_the_paper(ratios, desired, distance: float, beta: float, good: float, bad: float):
    """arXiv 2402.01306, equations 7 and 8, float64."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    value = np.where(desired, good * sigmoid(beta * (ratios - distance)), bad * sigmoid(beta * (distance - ratios)))
    return np.where(desired, good, bad) - value


def test_the_loss_is_that_of_the_paper(ranks):
    rng = np.random.default_rng(0)
    ratios, desired = rng.normal(0, 8, 40), rng.random(40) < 0.5
    variants = ((0.1, 1.0, 1.0, 0.0), (0.5, 1.33, 0.7, 2.5))
    cases = [
        ({"beta": beta, "desirable_weight": good, "undesirable_weight": bad}, ratios.tolist(), desired.tolist(), z0)
        for beta, good, bad, z0 in variants
    ]
    [found] = ranks(1, f"{RANKS}:kto_losses_of", cases)
    for losses, (beta, good, bad, z0) in zip(found, variants, strict=True):
        np.testing.assert_allclose(losses, by_the_paper(ratios, desired, z0, beta, good, bad), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("lora", [LORA, pytest.param({}, marks=pytest.mark.long)], ids=["lora", "full"])
def test_a_run_has_the_loss_of_the_formula(ranks, runs, lora):
    """The evaluation of the model after a step, and the step after that: of responses one by one, with z0 of all that
    are evaluated and of all of that step."""
    flags = WEIGHTS | {"model": "wide", "beta": 0.2, "loss_chunk_tokens": 40, "max_length": 128} | lora
    run = runs(PAIRS, max_steps=1, **flags)
    material = [str(runs.material / name) for name in ("wide", "few-preferences")]
    [found] = ranks(1, f"{RANKS}:kto_by_hand", *material, str(run.output))
    ratios, unrelated, logps, tokens = (np.array(found[name]) for name in ("ratios", "unrelated", "logps", "tokens"))
    desired = np.arange(2 * FEW_PREFERENCES) % 2 == 0

    def expected(part):
        distance = unrelated[part].mean()
        assert distance > 0.05
        return distance, by_the_paper(ratios[part], desired[part], distance, 0.2, 2, 0.5).mean()

    second = runs(PAIRS, max_steps=2, **flags).steps[1]
    distance, loss = expected(found["second_step"])
    assert second["loss"] == pytest.approx(loss, abs=2e-6)
    assert second["kl"] == pytest.approx(distance, abs=2e-5)
    assert second["desired"] == desired[found["second_step"]].mean()

    distance, loss = expected(np.arange(2 * FEW_PREFERENCES))
    evaluated = run.evaluation
    assert evaluated["eval_loss"] == pytest.approx(loss, abs=2e-6)
    assert evaluated["eval_kl"] == pytest.approx(distance, abs=2e-5)
    assert evaluated["eval_accuracy"] == ((ratios > distance) == desired).mean()
    margin = 0.2 * (ratios[desired].mean() - ratios[~desired].mean())
    assert evaluated["eval_rewards_margin"] == pytest.approx(margin, abs=2e-5)
    assert evaluated["eval_logps_chosen"] == pytest.approx(logps[desired].mean(), rel=1e-6)
    assert evaluated["eval_tokens_rejected"] == tokens[~desired].mean()
    assert evaluated["eval_responses"] == 2 * FEW_PREFERENCES


@pytest.mark.long
def test_z0_is_never_below_0(runs):
    """All responses become less likely."""
    run = runs(PAIRS, **WEIGHTS | {"desirable_weight": 0, "undesirable_weight": 1, "beta": 0.2, "max_steps": 3})
    assert [*run.column("kl")] == [0, 0, 0]
    assert run.column("rewards_chosen")[-1] < 0


@pytest.mark.long
def test_evaluations_between_the_steps_change_none(runs):
    """They have a z0 of their own."""
    plain, evaluated = (runs(PAIRS, **KTO, **LORA, **more) for more in ({}, {"eval_steps": 1}))
    for key in ("loss", "kl", "grad_norm"):
        assert [*evaluated.column(key)] == [*plain.column(key)]


@pytest.mark.long
def test_single_responses_that_are_all_desired(runs, tmp_path):
    """There is nothing to say of undesired ones then."""
    rows = [json.loads(line) for line in (runs.material / "few-preferences" / "train.json").read_text().splitlines()]
    labeled = [{"prompt": row["prompt"], "completion": row["chosen"], "label": True} for row in rows]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.json").write_text("".join(json.dumps(row) + "\n" for row in labeled))
    flags = {"dataset_name_or_path": tmp_path, "max_steps": 2, "learning_rate": 0, "beta": 0.3}
    run = runs(PAIRS, loss_type="kto", **flags)
    first, evaluated = run.steps[0], run.evaluation
    assert first["loss"] == 0.5 and first["rewards_chosen"] == 0 and "rewards_rejected" not in first
    assert evaluated["eval_desired"] == 1 and evaluated["eval_responses"] == FEW_PREFERENCES
    assert "    responses: loss 0.5000  accuracy 0.0%  KL 0.0000\n" in run.stdout
    assert f"eval at step 2  loss 0.5000  accuracy 0.0%  KL 0.0000  on {FEW_PREFERENCES} responses\n" in run.stdout
