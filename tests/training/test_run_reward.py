"""run_reward.py: the loss by its formula, scores, what is logged, what it leaves. Layouts and resuming:
tests/distributed/cells.py."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from launch.checkpoint.weight_files import find_weights
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.prediction.model_flags import check_adapter, check_model
from launch.preflight.model_files import check_weights
from launch.weights.model_directories import export_directory, import_directory
from launch.weights.peft import export_adapter
from tests.distributed.cells import LORA, REWARDS
from tests.ranks import ROOT
from tests.runs import FEW_PREFERENCES

RANKS = "tests.training.reward_ranks"
IDS = [[5, 9, 17, 4, 33], [7, 3, 21], [40, 8, 2, 19]]  # of three texts
FAST = {"model": "wide", "learning_rate": 1e-2, "max_steps": 3}


def bradley_terry(chosen, rejected):
    """InstructGPT, arXiv 2203.02155, equation 1, float64."""
    return np.logaddexp(0, rejected - chosen)


def test_the_loss_is_that_of_the_paper(ranks):
    scores = np.random.default_rng(0).normal(0, 4, [2, 12])
    [found] = ranks(1, f"{RANKS}:losses_of", scores.tolist())
    np.testing.assert_allclose(found, bradley_terry(*scores), rtol=1e-6, atol=1e-6)


def scores(ranks, runs, output) -> np.ndarray:
    """Return the scores [pairs, (chosen, rejected)] of few-preferences by what a run has left."""
    material = [str(runs.material / name) for name in ("wide", "few-preferences")]
    [found] = ranks(1, f"{RANKS}:by_hand", *material, str(output))
    return np.array(found)


@pytest.mark.parametrize("method", [LORA, pytest.param({}, marks=pytest.mark.long)], ids=["lora", "full"])
def test_a_run_has_the_loss_of_the_formula(ranks, runs, method):
    """Of the scores of the last tokens; before training all are 0."""
    run = runs(REWARDS, **FAST, **method)
    first, evaluated = run.steps[0], run.evaluation
    assert first["loss"] == pytest.approx(np.log(2), abs=1e-7)
    assert (first["rewards_chosen"], first["rewards_margin"], first["accuracy"]) == (0, 0, 0)
    chosen, rejected = scores(ranks, runs, run.output).T
    assert evaluated["eval_loss"] == pytest.approx(bradley_terry(chosen, rejected).mean(), abs=2e-6)
    assert evaluated["eval_rewards_chosen"] == pytest.approx(chosen.mean(), abs=1e-5)
    assert evaluated["eval_rewards_margin"] == pytest.approx((chosen - rejected).mean(), abs=1e-5)
    assert evaluated["eval_accuracy"] == (chosen > rejected).mean()
    assert np.abs(chosen).max() > 0.1, "the run has learnt nothing"
    assert evaluated["eval_pairs"] == FEW_PREFERENCES
    assert "pairs: loss 0.6931  accuracy 0.0%  margin +0.000 (+0.000 - +0.000)\n" in run.stdout


@pytest.mark.long
def test_a_run_begins_with_the_scores_of_a_reward_model(runs):
    began = runs(REWARDS, **FAST)
    again = runs(REWARDS, model_name_or_path=began.output, max_steps=1)
    assert abs(again.steps[0]["loss"] - np.log(2)) > 1e-3


def test_a_reward_model_writes_no_text(runs):
    """It is not taken for a model that does."""
    output, data = runs(REWARDS).output, str(runs.material / "few-preferences")
    with pytest.raises(UserError, match="is a reward model: it gives a score of a text and writes none"):
        check_model(str(output))
    flags = {"model_name_or_path": [str(output)], "dataset_name_or_path": [data]}
    [finding] = check_weights(RunConfig("launch/run_dpo.py", flags))
    assert not finding.ok and "score.weight, of a reward model, which writes no text" in finding.found
    assert all(one.ok for one in check_weights(RunConfig("launch/run_reward.py", flags)))
    with pytest.raises(UserError, match="is the adapter of a reward model: it gives a score of a text and writes none"):
        check_adapter(str(runs.material / "wide"), runs(REWARDS, **FAST, **LORA).output)


# ---- what a run leaves, in transformers and PEFT. Needs `make test-long`'s packages.


def in_transformers(folder: Path, models: list, ids: list[list[int]]) -> list[list[float]]:
    (folder / "job.json").write_text(json.dumps({"models": models, "ids": ids}))
    command = [sys.executable, "-W", "ignore", "-m", "tests.training.scored_in_transformers", str(folder / "job.json")]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(said.splitlines()[-1])


@pytest.mark.nightly
def test_models_of_all_families_give_the_same_scores_in_transformers(ranks, tmp_path):
    """And come back as they were."""
    [ours] = ranks(1, f"{RANKS}:of_families", str(tmp_path), IDS)
    assert ours.keys() == {"llama", "qwen2", "qwen3", "mistral"}
    for name in ours:
        export_directory(tmp_path / name, tmp_path / "out" / name, None, 10**9)
        import_directory(tmp_path / "out" / name, tmp_path / "back" / name, None, 10**9)
        again, was = (find_weights(folder / name) for folder in (tmp_path / "back", tmp_path))
        assert again.keys() == was.keys()
        assert all(np.array_equal(again[key].open(), was[key].open()) for key in was)
    theirs = in_transformers(tmp_path, [[str(tmp_path / "out" / name), None] for name in ours], IDS)
    for name, found in zip(ours, theirs, strict=True):
        assert np.std(ours[name]) > 0.1
        assert found == pytest.approx(ours[name], abs=1e-5 * max(1.0, np.abs(ours[name]).max())), name


@pytest.mark.long
def test_what_runs_leave_gives_the_same_scores_in_transformers(ranks, runs, tmp_path):
    """A whole model, an adapter merged into its base, and an adapter that PEFT puts beside it."""
    whole, adapter = (runs(REWARDS, **FAST, **more).output for more in ({}, LORA))
    base, merged = runs.material / "wide", tmp_path / "merged"
    [said] = ranks(1, f"{RANKS}:merged", str(base), str(adapter), str(merged))
    assert said["exit_code"] == 0, said
    file = merged / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pad_token": "<unk>"}))
    sources = {"whole": whole, "merged": merged, "model": base}
    for name, source in sources.items():
        export_directory(source, tmp_path / "out" / name, None, 10**9)
    configs = [json.loads((tmp_path / "out" / name / "config.json").read_text()) for name in ("whole", "merged")]
    assert [config["pad_token_id"] for config in configs] == [None, 0], "text by text, and in one batch"
    export_adapter(adapter, base, tmp_path / "out" / "adapter")
    [ids] = ranks(1, f"{RANKS}:ids_of", str(base), str(runs.material / "few-preferences"))
    models = [[tmp_path / "out" / "whole", None], [tmp_path / "out" / "merged", None]]
    models.append([tmp_path / "out" / "model", tmp_path / "out" / "adapter"])
    theirs = in_transformers(tmp_path, [[base and str(base) for base in pair] for pair in models], ids)
    for output, found in zip((whole, adapter, adapter), theirs, strict=True):
        chosen = scores(ranks, runs, output)[:, 0]
        assert np.std(chosen) > 0.01
        np.testing.assert_allclose(found, chosen, rtol=0, atol=1e-5 * max(1.0, np.abs(chosen).max()))
