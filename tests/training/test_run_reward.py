"""run_reward.py: the loss by its formula, scores, what is logged, layouts, packing and resuming."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from launch.checkpoint.weight_files import find_weights
from launch.config.flag_values import parse_flags
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.prediction.model_flags import check_adapter, check_model
from launch.preflight.model_files import check_weights
from launch.reporting.records import read_summary, read_train_log
from launch.weights.model_directories import export_directory, import_directory
from launch.weights.peft import export_adapter
from tests.ranks import ROOT
from tests.training.finetune_material import argv, write_first

IDS = [[5, 9, 17, 4, 33], [7, 3, 21], [40, 8, 2, 19]]  # of three texts

RUN = "tests.training.reward_ranks:run"
FEW = 22  # three steps of 8, the last of 6
FULL, LORA = {}, {"lora": 1, "lora_rank": 4}


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("rewards")
    ranks(1, "tests.training.finetune_material:make_material", str(root))
    write_first(root / "preferences", root / "few", FEW)
    return root


@pytest.fixture
def run(ranks, material, tmp_path):
    """run(name, processes, ...): the output directory of a run that must end well."""

    def finish(name="out", processes=1, **changes):
        flags = {"dataset_name_or_path": material / "few", "max_steps": 3, "learning_rate": 1e-3} | changes
        [said, *_] = ranks(processes, RUN, argv(material, tmp_path / name, **flags))
        assert said["exit_code"] == 0, said["stderr"] + said["stdout"][-2000:]
        finish.said = said["stdout"]
        return tmp_path / name

    finish.folder = tmp_path
    return finish


def column(output, key: str) -> list[float]:
    return [record[key] for record in read_train_log(output) if "learning_rate" in record]


def bradley_terry(chosen, rejected):
    """InstructGPT, arXiv 2203.02155, equation 1, float64."""
    return np.logaddexp(0, rejected - chosen)


def test_the_loss_is_that_of_the_paper(ranks):
    scores = np.random.default_rng(0).normal(0, 4, [2, 12])
    [found] = ranks(1, "tests.training.reward_ranks:losses_of", scores.tolist())
    np.testing.assert_allclose(found, bradley_terry(*scores), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", [FULL, LORA], ids=["full", "lora"])
def test_a_run_has_the_loss_of_the_formula(ranks, run, material, method):
    """Of the scores of the last tokens; before training all are 0."""
    output = run(do_eval=1, learning_rate=1e-2, **method)
    first = [record for record in read_train_log(output) if "learning_rate" in record][0]
    assert first["loss"] == pytest.approx(np.log(2), abs=1e-7)
    assert (first["rewards_chosen"], first["rewards_margin"], first["accuracy"]) == (0, 0, 0)
    [scores] = ranks(1, "tests.training.reward_ranks:by_hand", str(material), str(output))
    chosen, rejected = np.array(scores).T
    evaluated = read_summary(output)["evaluation"]
    assert evaluated["eval_loss"] == pytest.approx(bradley_terry(chosen, rejected).mean(), abs=2e-6)
    assert evaluated["eval_rewards_chosen"] == pytest.approx(chosen.mean(), abs=1e-5)
    assert evaluated["eval_rewards_margin"] == pytest.approx((chosen - rejected).mean(), abs=1e-5)
    assert evaluated["eval_accuracy"] == (chosen > rejected).mean()
    assert np.abs(chosen).max() > 0.1, "the run has learnt nothing"
    assert evaluated["eval_pairs"] == FEW
    assert "pairs: loss 0.6931  accuracy 0.0%  margin +0.000 (+0.000 - +0.000)\n" in run.said


@pytest.mark.parametrize("method", [FULL, pytest.param(LORA, marks=pytest.mark.long)], ids=["full", "lora"])
def test_every_pair_of_a_step_weighs_the_same(run, method):
    """However the pairs of a step are cut into micro batches and divided over ranks; the last step has fewer."""
    one = run("one", **method)
    assert max(np.abs(column(one, "rewards_margin"))) > 1e-3
    half = {"processes": 2, "per_device_train_batch_size": 4}
    ways = {
        "cut": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
        "tp2": {"processes": 2, "tensor_parallel_degree": 2},
        "sp2": {"processes": 2, "tensor_parallel_degree": 2, "sequence_parallel": 1},
        "stage2": half | {"sharding": "stage2"},
        "stage3": half | {"sharding": "stage3"},
    }
    for name, flags in ways.items():
        output = run(name, **method, **flags)
        for key, bound in (("loss", 2e-6), ("accuracy", 0), ("rewards_margin", 2e-6), ("tokens_rejected", 0)):
            found, expected = column(output, key), column(one, key)
            np.testing.assert_allclose(found, expected, rtol=0, atol=bound, err_msg=f"{name} {key}")
        np.testing.assert_allclose(column(output, "grad_norm"), column(one, "grad_norm"), rtol=2e-5, err_msg=name)


def test_packed_pairs_are_the_same_pairs(run):
    """All in one step, which begins with the scores of a reward model."""
    began = run("began", max_steps=2)
    flags = {"model_name_or_path": began, "per_device_train_batch_size": FEW, "num_train_epochs": 1, "max_steps": -1}
    apart, rows = run("apart", do_eval=1, **flags), run("rows", do_eval=1, zero_padding=1, **flags)
    assert abs(column(apart, "loss")[0] - np.log(2)) > 1e-3, "it begins anew"
    for key in ("loss", "rewards_margin", "tokens_chosen"):
        assert column(rows, key) == pytest.approx(column(apart, key), abs=2e-6)
    assert column(rows, "grad_norm") == pytest.approx(column(apart, "grad_norm"), rel=2e-5)


@pytest.mark.parametrize("method", [FULL, LORA], ids=["full", "lora"])
def test_a_run_that_goes_on_is_the_run_to_the_bit(run, method):
    flags = {"max_steps": 5, **method}
    whole = run("whole", **flags)
    run("parts", save_steps=2, **flags | {"max_steps": 2})
    parts = run("parts", save_steps=2, **flags)
    for key in ("loss", "grad_norm", "rewards_margin", "consumed_tokens"):
        assert column(parts, key) == column(whole, key), key
    assert json.loads((parts / "run_summary.json").read_text())["global_step"] == 5


def test_the_command_of_the_page(run, material):
    """docs/align.md, with a model and data of the tests."""
    page = (ROOT / "docs" / "align.md").read_text(encoding="utf-8")
    [line] = [line for line in page.splitlines() if line.startswith("python launch/run_reward.py")]
    flags = {name: words[0] for name, words in parse_flags(line.split()[2:]).items()}
    given = {"model_name_or_path": material / "model", "dataset_name_or_path": material / "few", "max_steps": 2}
    output = run(**flags | given | {"output_dir": run.folder / "out", "cpu_fast": "auto"})
    assert {"eval_accuracy", "eval_rewards_margin"} <= read_summary(output)["evaluation"].keys()
    config = json.loads((output / "config.json").read_text())
    assert config["architectures"] == ["LlamaForSequenceClassification"] and config["id2label"] == {"0": "LABEL_0"}


def test_a_reward_model_writes_no_text(run, material):
    """It is not taken for a model that does."""
    output = run(max_steps=1)
    with pytest.raises(UserError, match="is a reward model: it gives a score of a text and writes none"):
        check_model(str(output))
    flags = {"model_name_or_path": [str(output)], "dataset_name_or_path": [str(material / "few")]}
    [finding] = check_weights(RunConfig("launch/run_dpo.py", flags))
    assert not finding.ok and "score.weight, of a reward model, which writes no text" in finding.found
    assert all(one.ok for one in check_weights(RunConfig("launch/run_reward.py", flags)))
    with pytest.raises(UserError, match="is the adapter of a reward model: it gives a score of a text and writes none"):
        check_adapter(str(material / "model"), run("adapter", max_steps=1, **LORA))


# ---- what a run leaves, in transformers and PEFT. Needs `make test-long`'s packages.


def in_transformers(folder: Path, models: list, ids: list[list[int]]) -> list[list[float]]:
    (folder / "job.json").write_text(json.dumps({"models": models, "ids": ids}))
    command = [sys.executable, "-W", "ignore", "-m", "tests.training.scored_in_transformers", str(folder / "job.json")]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(said.splitlines()[-1])


@pytest.mark.long
def test_models_of_all_families_give_the_same_scores_in_transformers(ranks, tmp_path):
    """And come back as they were."""
    [ours] = ranks(1, "tests.training.reward_ranks:of_families", str(tmp_path), IDS)
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
def test_what_runs_leave_gives_the_same_scores_in_transformers(ranks, run, material, tmp_path):
    """A whole model, an adapter merged into its base, and an adapter that PEFT puts beside it."""
    whole, adapter = (run(name, learning_rate=1e-2, **more) for name, more in (("whole", FULL), ("adapter", LORA)))
    merged = tmp_path / "merged"
    [said] = ranks(1, "tests.training.reward_ranks:merged", str(material / "model"), str(adapter), str(merged))
    assert said["exit_code"] == 0, said
    file = merged / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pad_token": "<unk>"}))
    for source in (whole, merged, material / "model"):
        export_directory(source, tmp_path / "out" / source.name, None, 10**9)
    paddings = [
        json.loads((tmp_path / "out" / source.name / "config.json").read_text())["pad_token_id"]
        for source in (whole, merged)
    ]
    assert paddings == [None, 0], "text by text, and in one batch"
    export_adapter(adapter, material / "model", tmp_path / "out" / "adapter")
    [ids] = ranks(1, "tests.training.reward_ranks:ids_of", str(material))
    models = [[tmp_path / "out" / "whole", None], [tmp_path / "out" / "merged", None]]
    models.append([tmp_path / "out" / "model", tmp_path / "out" / "adapter"])
    theirs = in_transformers(tmp_path, [[base and str(base) for base in pair] for pair in models], ids)
    for output, found in zip((whole, adapter, adapter), theirs, strict=True):
        [scores] = ranks(1, "tests.training.reward_ranks:by_hand", str(material), str(output))
        chosen = np.array(scores)[:, 0]
        assert np.std(chosen) > 0.01
        np.testing.assert_allclose(found, chosen, rtol=0, atol=1e-5 * max(1.0, np.abs(chosen).max()))
