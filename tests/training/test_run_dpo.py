"""run_dpo.py: the losses by the formulas of their papers, the reference, what is logged. Layouts and resuming:
tests/distributed/cells.py."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from launch.methods.preference_flags import COMPARES, KTO, OF_MEANS, weights_of
from launch.processes.logs import KILLED
from launch.reporting.records import read_train_log
from tests.distributed.cells import LORA, ONCE, PAIRS
from tests.distributed.layouts import PP2, SINGLE
from tests.distributed.parity import PAIRS_LOSS_TOLERANCE
from tests.runs import FEW_PREFERENCES, as_words

RANKS = "tests.training.preference_ranks"
PAIRED = [loss for loss in COMPARES if loss != KTO]
long = pytest.mark.long


@pytest.fixture
def preferring(runs, ranks, tmp_path):
    """preferring(processes=1, exit_code=0, **flags): what rank 0 said of a run into tmp_path/out."""

    def run(processes: int = 1, exit_code: int = 0, **flags) -> dict:
        words = as_words(runs.usual(PAIRS, "wide") | {"output_dir": tmp_path / "out"} | flags)
        said = ranks(processes, "tests.runs_ranks:train", "run_dpo", words, [])
        assert {one["exit_code"] for one in said} == {exit_code}, said[0]["stderr"]
        return said[0]

    return run


# ---- formulas


def log_sigmoid(x):
    return -np.logaddexp(0, -x)


def by_the_paper(loss: str, chosen, rejected, beta: float, gamma: float, smoothing: float):
    """float64. chosen, rejected: log-ratios to the reference, of means over tokens where the paper has them."""
    if loss == "sigmoid":  # arXiv 2305.18290, equation 7; label smoothing of cDPO, equation 3
        margin = beta * (chosen - rejected)
        return -(1 - smoothing) * log_sigmoid(margin) - smoothing * log_sigmoid(-margin)
    if loss == "simpo":  # arXiv 2405.14734, equation 6
        margin = beta * chosen - beta * rejected - gamma
        return -(1 - smoothing) * log_sigmoid(margin) - smoothing * log_sigmoid(-margin)
    if loss == "hinge":  # arXiv 2309.06657, equation 7
        return np.maximum(0, 1 - beta * (chosen - rejected))
    if loss == "ipo":  # arXiv 2310.12036, equation 17
        return (chosen - rejected - 1 / (2 * beta)) ** 2
    odds = [np.exp(score) / (1 - np.exp(score)) for score in (chosen, rejected)]  # arXiv 2403.07691, equations 4 and 7
    return -log_sigmoid(np.log(odds[0] / odds[1]))


def test_losses_are_those_of_the_papers(ranks):
    rng = np.random.default_rng(0)
    cases, expected = [], []
    for loss in PAIRED:
        scores = -rng.uniform(0.05, 4, [2, 12])
        before = -rng.uniform(0.05, 4, [2, 12]) if COMPARES[loss] else np.zeros([2, 12])
        for beta, gamma, smoothing in ((0.1, 0.5, 0.0), (2.0, 1.4, 0.2)):
            expected.append(by_the_paper(loss, *(scores - before), beta, gamma, smoothing))
            given = {"loss_type": loss, "beta": beta, "simpo_gamma": gamma, "label_smoothing": smoothing}
            cases.append((given, scores.tolist(), before.tolist()))
    [found] = ranks(1, f"{RANKS}:losses_of", cases)
    for (given, *_), one, other in zip(cases, found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6, err_msg=str(given))


def test_orpo_weighs_its_terms_as_its_paper():
    args = SimpleNamespace(loss_type="or", pref_loss_ratio=None, sft_loss_ratio=None)
    assert weights_of(args) == (0.1, 1.0)
    assert weights_of(SimpleNamespace(loss_type="sigmoid", pref_loss_ratio=None, sft_loss_ratio=0.2)) == (1.0, 0.2)


@pytest.mark.parametrize(
    ("loss", "lora"),
    [
        ("sigmoid", LORA),
        *(pytest.param(loss, {}, marks=long) for loss in PAIRED),
        *(pytest.param(loss, LORA, marks=pytest.mark.nightly) for loss in PAIRED if loss != "sigmoid"),
    ],
)
def test_a_run_has_the_loss_of_the_formula(ranks, runs, loss, lora):
    """The first step and, once the policy has moved, the evaluation: of pairs one by one, whose log-probabilities are
    those of the models that the run begins and ends with."""
    flags = {"loss_type": loss, "beta": 0.5, "simpo_gamma": 0.3, "label_smoothing": 0.1, "sft_loss_ratio": 0.25}
    flags |= {"loss_chunk_tokens": 40, "max_steps": 3, "learning_rate": 1e-2}
    run = runs(PAIRS, model="wide", **flags, **lora)
    material = [str(runs.material / name) for name in ("wide", "few-preferences")]
    [found] = ranks(1, f"{RANKS}:by_hand", *material, str(run.output))
    before, after = np.array(found["before"]), np.array(found["after"])  # [pairs, (chosen, rejected), (sum, tokens)]

    def expected(now):
        sums, tokens = now[..., 0], now[..., 1]
        scale = tokens if loss in OF_MEANS else 1
        reference = before[..., 0] / scale if COMPARES[loss] else 0
        chosen, rejected = (sums / scale - reference).T
        smoothing = 0.1 if loss in ("sigmoid", "simpo") else 0
        each = by_the_paper(loss, chosen, rejected, 0.5, 0.3, smoothing)
        weight = 0.1 if loss == "or" else 1
        rewards = 0.5 * np.stack([chosen, rejected])
        return weight * each - 0.25 * sums[:, 0] / tokens[:, 0], rewards

    losses, _ = expected(before)
    assert run.steps[0]["loss"] == pytest.approx(losses[found["first_step"]].mean(), abs=2e-6)
    losses, (chosen, rejected) = expected(after)
    evaluated = run.evaluation
    assert evaluated["eval_loss"] == pytest.approx(losses.mean(), abs=5e-6)
    assert evaluated["eval_rewards_margin"] == pytest.approx((chosen - rejected).mean(), abs=2e-5)
    assert evaluated["eval_accuracy"] == (chosen > rejected).mean()
    assert evaluated["eval_pairs"] == FEW_PREFERENCES
    assert evaluated["eval_logps_chosen"] == pytest.approx(after[:, 0, 0].mean(), rel=1e-6)
    assert evaluated["eval_tokens_rejected"] == after[:, 1, 1].mean()
    assert ("eval_kl" in evaluated) == COMPARES[loss]


def test_equal_models_have_the_loss_ln_2(runs):
    run = runs(PAIRS, **LORA)
    first = run.steps[0]
    assert first["loss"] == pytest.approx(np.log(2), abs=1e-7)
    assert [first[key] for key in ("rewards_margin", "kl", "accuracy")] == [0, 0, 0]
    assert "pairs: loss 0.6931  accuracy 0.0%  margin +0.000 (+0.000 - +0.000)  KL 0.0000" in run.stdout


@long
def test_hinge_may_rest(runs):
    """Where all margins are wide enough the gradient is 0, and the run goes on."""
    run = runs(PAIRS, model="wide", loss_type="hinge", beta=1000, max_steps=14, learning_rate=1e-2)
    assert [*run.column("grad_norm")[-4:]] == [0, 0, 0, 0] and run.column("loss")[-1] == 0


@long
def test_a_run_that_unlearns_both_responses_says_so(runs, tmp_path):
    """Rejected responses differ from chosen ones in a word, and the model knows the chosen ones by heart: a margin is
    found nowhere but below. Their own loss holds them."""
    rows = [json.loads(line) for line in (runs.material / "preferences" / "train.json").read_text().splitlines()]
    alike = [row | {"rejected": row["rejected"].split()[0] + " " + row["chosen"].partition(" ")[2]} for row in rows]
    lines = [json.dumps(row) + "\n" for row in alike if row["rejected"] != row["chosen"]]
    (tmp_path / "train.json").write_text("".join(lines[:16]))
    flags = {"dataset_name_or_path": tmp_path, "do_eval": 0, "learning_rate": 1e-2, "weight_decay": 0}
    knows = runs(PAIRS, model="wide", **flags, max_steps=30, pref_loss_ratio=0, sft_loss_ratio=1)
    flags |= {"model_name_or_path": knows.output, "beta": 0.01, "max_steps": 14}
    collapsed = runs(PAIRS, **flags)
    told = "the margin grows while both responses become less likely: a token of the chosen ones by"
    assert collapsed.stdout.count(f"warning: {told}") == 1
    warnings = [record["warning"] for record in read_train_log(collapsed.output) if "warning" in record]
    assert [told in warning for warning in warnings] == [True]
    assert collapsed.column("logps_chosen")[-1] < collapsed.column("logps_chosen")[0] - 50
    assert told not in runs(PAIRS, sft_loss_ratio=1, **flags).stdout


@long
@pytest.mark.parametrize(
    ("before", "after"),
    [(SINGLE, SINGLE), (PP2, SINGLE), (SINGLE, PP2)],
    ids=lambda layout: layout.name,
)
def test_a_run_that_goes_on_reads_the_reference_that_the_first_part_has_computed(runs, before, after):
    whole, continued = runs(PAIRS, layout=before, **ONCE), runs.continued(PAIRS, before=before, layout=after, **ONCE)
    written = [(run.output / "reference" / "train.values").stat().st_mtime_ns for run in (whole, continued)]
    assert written[0] == written[1]
    np.testing.assert_allclose(continued.column("loss"), whole.column("loss")[-3:], rtol=0, atol=2e-6)


@long
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGINT"])
def test_what_is_computed_of_a_reference_is_kept(ranks, runs, tmp_path, signal):
    """Of a run that ends in the middle of it, after two parts of three."""
    flags = as_words(runs.usual(PAIRS) | ONCE | {"output_dir": tmp_path / "out", "per_device_train_batch_size": 8})
    log = tmp_path / "log"
    outcome = ranks.outcome(1, f"{RANKS}:ended_while_computing", flags, 2, signal, directory=log, grace=0.2)
    told = (log / "workerlog.0").read_text()
    assert outcome.exit_code == (KILLED if signal == "SIGKILL" else 0), told
    assert ("stopped by SIGINT after step 0 of 6; no step was made." in told) == (signal == "SIGINT")
    record = json.loads((tmp_path / "out" / "reference" / "train.json").read_text())
    assert [part["samples"] for part in record["parts"]] == [8, 8]
    [said] = ranks(1, f"{RANKS}:ended_while_computing", flags, 0, signal)
    assert said[0] == 6  # of 22; those of the evaluation follow


@long
def test_time_that_ends_while_a_reference_is_computed_ends_the_run(runs, preferring, tmp_path):
    """Of a run that has made all of its steps, too."""
    shutil.copytree(runs(PAIRS, model="wide", **ONCE).output, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "reference")
    batch = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
    said = preferring(max_run_minutes=1e-3, **ONCE, **batch)["stdout"]
    assert "stopped by --max_run_minutes 0.001 after step 6 of 6; " in said and "checkpoint-6 is whole" in said


@long
def test_a_reference_by_other_weights_or_with_damage_is_not_used(runs, preferring, tmp_path):
    run = runs(PAIRS, model="wide", **ONCE)
    output = shutil.copytree(run.output, tmp_path / "out", ignore=shutil.ignore_patterns("checkpoint-*"))
    file = output / "reference" / "train.values"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    batch = ONCE | {"per_device_train_batch_size": 8}
    told = preferring(overwrite_output_dir=1, resume_from_checkpoint="none", **batch)["stdout"]
    assert "train.values is not what was written; computed again" in told
    losses = [record["loss"] for record in read_train_log(output) if "learning_rate" in record]
    assert losses == [*run.column("loss")]
    other = shutil.copytree(runs.material / "wide", tmp_path / "other")
    [weights] = other.glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[8 + int.from_bytes(content[:8], "little")] ^= 1  # the first byte of the first tensor
    weights.write_bytes(content)
    changed = batch | {"model_name_or_path": other, "max_steps": 7}
    told = preferring(exit_code=2, **changed)["stderr"]
    assert "the reference, which is the model before training, has other weights. Give the former" in told
    assert "other weights; computed again" in preferring(resume_changed="model", **changed)["stdout"]


@long
def test_values_that_cannot_be_written_end_all_ranks(preferring, tmp_path):
    """None waits for the one that writes."""
    (tmp_path / "out" / "reference" / "train.values").mkdir(parents=True)
    told = preferring(2, exit_code=2, max_steps=1, **ONCE)["stderr"]
    assert "Is a directory" in told and "train.values" in told


@long
@pytest.mark.parametrize("method", [PAIRS, "rewards"])
def test_packed_pairs_are_the_same_pairs(runs, method):
    """All in one step."""
    flags = {"max_steps": 1, "per_device_train_batch_size": FEW_PREFERENCES, "save_steps": 9}
    flags |= {"beta": 0.1, "sft_loss_ratio": 0.5} if method == PAIRS else {}
    apart = runs(method, **flags)
    rows = runs(method, **flags | {"zero_padding": 1, "num_train_epochs": 1, "max_steps": -1})
    assert rows.column("loss") == pytest.approx(apart.column("loss"), abs=PAIRS_LOSS_TOLERANCE)
    assert rows.column("grad_norm") == pytest.approx(apart.column("grad_norm"), rel=2e-5)
    for key in ("eval_loss", "eval_rewards_margin"):
        assert rows.evaluation[key] == pytest.approx(apart.evaluation[key], abs=5e-6)


@long
def test_packed_batches_that_are_all_padding_count_for_nothing(runs):
    """Of the last step, and of an evaluation on two ranks, the second of which has no pair left."""
    flags = {"loss_type": "simpo", "zero_padding": 1, "num_train_epochs": 1, "max_steps": -1, "save_steps": 9}
    whole = runs(PAIRS, per_device_train_batch_size=16, **flags)
    batches = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
    parts = runs(PAIRS, processes=2, per_device_eval_batch_size=FEW_PREFERENCES, **flags, **batches)
    assert parts.column("loss") == pytest.approx(whole.column("loss"), abs=2e-6)
    assert parts.evaluation["eval_loss"] == pytest.approx(whole.evaluation["eval_loss"], abs=5e-6)
