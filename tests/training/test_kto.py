"""run_dpo.py --loss_type kto: the loss by the formula of its paper, z0 of whole steps, what is logged, layouts and
resuming."""

import json

import numpy as np
import pytest

from launch.reporting.records import read_summary, read_train_log
from tests.training.finetune_material import argv, make_material, write_first

RUN = "tests.training.preference_ranks:run"
FEW = 11  # pairs, which are 22 responses: three steps of 8, the last of 6
FULL, LORA = {}, {"lora": 1, "lora_rank": 4}
# Desired responses weigh more, so that all responses become likelier, and z0 is above 0.
WEIGHTS = {"desirable_weight": 2, "undesirable_weight": 0.5}


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("desired")
    ranks(1, f"{make_material.__module__}:make_material", str(root))
    write_first(root / "preferences", root / "few", FEW)
    return root


@pytest.fixture
def run(ranks, material, tmp_path):
    """run(name, processes, beta=1, ...): the output directory of a run that must end well."""

    def finish(name="out", processes=1, **changes):
        flags = {"dataset_name_or_path": material / "few", "max_steps": 3, "learning_rate": 1e-2, "loss_type": "kto"}
        [said, *_] = ranks(processes, RUN, argv(material, tmp_path / name, **flags | changes))
        assert said["exit_code"] == 0, said["stderr"] + said["stdout"][-2000:]
        finish.said = said["stdout"]
        return tmp_path / name

    return finish


def steps(output) -> list[dict]:
    return [record for record in read_train_log(output) if "learning_rate" in record]


def column(output, key: str) -> list[float]:
    return [record[key] for record in steps(output)]


def by_the_paper(ratios, desired, distance: float, beta: float, good: float, bad: float):
    """arXiv 2402.01306, equations 7 and 8, float64."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    value = np.where(desired, good * sigmoid(beta * (ratios - distance)), bad * sigmoid(beta * (distance - ratios)))
    return np.where(desired, good, bad) - value


def test_the_loss_is_that_of_the_paper(ranks):
    rng = np.random.default_rng(0)
    ratios, desired = rng.normal(0, 8, 40), rng.random(40) < 0.5
    for beta, good, bad, distance in ((0.1, 1.0, 1.0, 0.0), (0.5, 1.33, 0.7, 2.5)):
        args = {"beta": beta, "desirable_weight": good, "undesirable_weight": bad}
        given = args, ratios.tolist(), desired.tolist(), distance
        [found] = ranks(1, "tests.training.preference_ranks:kto_losses_of", *given)
        expected = by_the_paper(ratios, desired, distance, beta, good, bad)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("lora", [FULL, LORA], ids=["full", "lora"])
def test_a_run_has_the_loss_of_the_formula(ranks, run, material, lora):
    """The evaluation of the model after a step, and the step after that: of responses one by one, with z0 of all that
    are evaluated and of all of that step."""
    flags = WEIGHTS | {"beta": 0.2, "loss_chunk_tokens": 40} | lora
    output = run("one", max_steps=1, do_eval=1, **flags)
    [found] = ranks(1, "tests.training.preference_ranks:kto_by_hand", str(material), str(output))
    ratios, unrelated, logps, tokens = (np.array(found[name]) for name in ("ratios", "unrelated", "logps", "tokens"))
    desired = np.arange(2 * FEW) % 2 == 0

    def expected(part):
        distance = unrelated[part].mean()
        assert distance > 0.05
        return distance, by_the_paper(ratios[part], desired[part], distance, 0.2, 2, 0.5).mean()

    second = steps(run("two", max_steps=2, **flags))[1]
    distance, loss = expected(found["second_step"])
    assert second["loss"] == pytest.approx(loss, abs=2e-6)
    assert second["kl"] == pytest.approx(distance, abs=2e-5)
    assert second["desired"] == desired[found["second_step"]].mean()

    distance, loss = expected(np.arange(2 * FEW))
    evaluated = read_summary(output)["evaluation"]
    assert evaluated["eval_loss"] == pytest.approx(loss, abs=2e-6)
    assert evaluated["eval_kl"] == pytest.approx(distance, abs=2e-5)
    assert evaluated["eval_accuracy"] == ((ratios > distance) == desired).mean()
    margin = 0.2 * (ratios[desired].mean() - ratios[~desired].mean())
    assert evaluated["eval_rewards_margin"] == pytest.approx(margin, abs=2e-5)
    assert evaluated["eval_logps_chosen"] == pytest.approx(logps[desired].mean(), rel=1e-6)
    assert evaluated["eval_tokens_rejected"] == tokens[~desired].mean()
    assert evaluated["eval_responses"] == 2 * FEW


def test_z0_is_never_below_0(run):
    """All responses become less likely."""
    output = run(desirable_weight=0, undesirable_weight=1, beta=0.2)
    assert column(output, "kl") == [0, 0, 0]
    assert column(output, "rewards_chosen")[-1] < 0


WAYS = {
    "cut": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
    "evaluated": {"do_eval": 1, "evaluation_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 3},
    "tp2-chunks": {"processes": 2, "tensor_parallel_degree": 2, "loss_chunk_tokens": 40},
    "stage2": {"processes": 2, "sharding": "stage2", "per_device_train_batch_size": 4},
    "stage3": {"processes": 2, "sharding": "stage3", "per_device_train_batch_size": 4},
}


@pytest.mark.parametrize(
    ("lora", "ways"),
    [(FULL, ("cut", "stage2", "stage3")), (LORA, ("cut", "evaluated", "tp2-chunks", "stage3"))],
    ids=["full", "lora"],
)
def test_a_step_is_the_same_however_it_is_divided(run, lora, ways):
    """Into micro batches, chunks, over ranks; with evaluations between the steps, which have a z0 of their own. A
    ratio is the difference of sums of some 200 nats, which float32 rounds to 1.5e-5."""
    lora = lora | WEIGHTS | {"learning_rate": 1e-3, "num_train_epochs": 1, "max_steps": -1}
    one = run("one", **lora)
    assert column(one, "kl")[-1] > 0.2
    for name in ways:
        output = run(name, **lora, **WAYS[name])
        for key, bound in (("loss", 2e-6), ("accuracy", 0), ("rewards_margin", 2e-5), ("kl", 1e-4), ("desired", 0)):
            found, expected = column(output, key), column(one, key)
            np.testing.assert_allclose(found, expected, rtol=0, atol=bound, err_msg=f"{name} {key}")
        np.testing.assert_allclose(column(output, "grad_norm"), column(one, "grad_norm"), rtol=2e-5, err_msg=name)


@pytest.mark.parametrize("lora", [FULL, LORA], ids=["full", "lora"])
def test_a_run_that_goes_on_is_the_run_to_the_bit(run, lora):
    flags = {"max_steps": 5, "learning_rate": 1e-3, **WEIGHTS, **lora}
    whole = run("whole", **flags)
    run("parts", save_steps=2, **flags | {"max_steps": 2})
    parts = run("parts", save_steps=2, **flags)
    for key in ("loss", "grad_norm", "rewards_margin", "kl", "consumed_tokens"):
        assert column(parts, key) == column(whole, key), key
    assert column(whole, "kl")[-1] > 0


def test_single_responses_that_are_all_desired(run, material, tmp_path):
    """There is nothing to say of undesired ones then."""
    rows = [json.loads(line) for line in (material / "few" / "train.json").read_text().splitlines()]
    labeled = [{"prompt": row["prompt"], "completion": row["chosen"], "label": True} for row in rows]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.json").write_text("".join(json.dumps(row) + "\n" for row in labeled))
    output = run(dataset_name_or_path=tmp_path, max_steps=2, learning_rate=0, do_eval=1, beta=0.3)
    first, evaluated = steps(output)[0], read_summary(output)["evaluation"]
    assert first["loss"] == 0.5 and first["rewards_chosen"] == 0 and "rewards_rejected" not in first
    assert evaluated["eval_desired"] == 1 and evaluated["eval_responses"] == FEW
    assert "    responses: loss 0.5000  accuracy 0.0%  KL 0.0000\n" in run.said
    assert f"eval at step 2  loss 0.5000  accuracy 0.0%  KL 0.0000  on {FEW} responses\n" in run.said
