"""Evaluation by answers, and the best of a run beside its newest, in every layout."""

import json

import pytest
from safetensors.numpy import load_file

from launch.reporting.records import read_summary, read_train_log
from tests.training.finetune_material import argv, write_first

FINETUNE = "tests.training.finetune_ranks:finetune"
KEEP = "tests.training.best_ranks:keep"


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("answers")
    ranks(1, "tests.training.finetune_material:make_material", str(root))
    write_first(root / "pairs", root / "few", 7, shortest=True)
    return root


@pytest.fixture
def run(ranks, material, tmp_path):
    """run(processes, lora=1, ...): output directory of a run that must end well."""

    def finish(processes: int = 1, name: str = "out", **changes):
        changes = {"dataset_name_or_path": material / "few", "do_eval": 1} | changes
        for said in ranks(processes, FINETUNE, argv(material, tmp_path / name, **changes)):
            assert said["exit_code"] == 0, said["stderr"]
        return tmp_path / name

    return finish


def predictions(output, step: int) -> list[dict]:
    return [json.loads(line) for line in (output / "predictions" / f"step-{step}.jsonl").read_text().splitlines()]


def best(output) -> dict:
    record = json.loads((output / "best" / "best.json").read_text())
    return {name: record[name] for name in ("global_step", "eval_loss")}


def evaluations(output) -> dict[int, float]:
    return {record["global_step"]: record["eval_loss"] for record in read_train_log(output) if "eval_loss" in record}


# ---- answers


def test_what_was_learnt_is_answered_scored_and_kept(run, material):
    flags = {"lora": 1, "learning_rate": 1e-2, "max_steps": 60, "eval_steps": 30, "eval_with_do_generation": 1}
    output = run(per_device_eval_batch_size=3, **flags)
    rows = [json.loads(line) for line in (material / "few" / "dev.json").read_text().splitlines()]
    assert predictions(output, 60) == [
        {"question": row["src"], "reference": row["tgt"], "prediction": row["tgt"]} for row in rows
    ]
    found = read_summary(output)["evaluation"]
    assert [found[f"eval_{name}"] for name in ("bleu", "rouge1", "rougel")] == pytest.approx([100, 100, 100])
    logged = [record for record in read_train_log(output) if "eval_bleu" in record]
    assert [record["global_step"] for record in logged] == [30, 60]


LAYOUTS = {
    "batches of 1": (1, {"per_device_eval_batch_size": 1}),
    "tensor parallel": (2, {"tensor_parallel_degree": 2}),
    "data parallel": (2, {"per_device_train_batch_size": 4}),
    "stage 3": (2, {"sharding": "stage3", "per_device_train_batch_size": 4}),
}


@pytest.fixture(scope="module")
def alone(ranks, material, tmp_path_factory):
    """Two full-parameter steps on one process."""
    output = tmp_path_factory.mktemp("alone") / "out"
    flags = {"dataset_name_or_path": material / "few", "do_eval": 1, "max_steps": 2, "eval_with_do_generation": 1}
    [said] = ranks(1, FINETUNE, argv(material, output, **flags))
    assert said["exit_code"] == 0, said["stderr"]
    return output


@pytest.mark.parametrize(
    "layout",
    [pytest.param(name, marks=[] if name == "tensor parallel" else [pytest.mark.long]) for name in LAYOUTS],
)
def test_every_layout_answers_alike(run, alone, layout):
    processes, flags = LAYOUTS[layout]
    output = run(processes, max_steps=2, eval_with_do_generation=1, **flags)
    assert predictions(output, 2) == predictions(alone, 2)
    names = ("eval_bleu", "eval_rouge1", "eval_rouge2", "eval_rougel")
    assert [read_summary(output)["evaluation"][name] for name in names] == [
        read_summary(alone)["evaluation"][name] for name in names
    ]


@pytest.mark.parametrize(
    ("flag", "reason"),
    [("pipeline_parallel_degree", "a pipeline does not generate"), ("sequence_parallel", "cannot be divided")],
)
def test_layouts_that_cannot_answer_are_refused_before_training(ranks, material, tmp_path, flag, reason):
    changes = {"tensor_parallel_degree": 2, "sequence_parallel": 1} if flag == "sequence_parallel" else {flag: 2}
    flags = argv(material, tmp_path / "out", do_eval=1, eval_with_do_generation=1, **changes)
    first = ranks(2, FINETUNE, flags)[0]
    assert first["exit_code"] == 2
    assert "✗ --eval_with_do_generation 1 with" in first["stderr"] and reason in first["stderr"]


# ---- the best


def test_the_best_of_a_run_that_gets_worse_is_kept_and_gives_its_loss_again(run, material, tmp_path):
    """Seven dialogues are learnt by heart, which at last makes others less likely."""
    data = write_first(material / "pairs", tmp_path / "data", 7, shortest=True)
    others = (material / "pairs" / "train.json").read_text().splitlines(keepends=True)[-20:]
    (data / "dev.json").write_text("".join(others))
    flags = {"dataset_name_or_path": data, "max_steps": 24, "eval_steps": 4, "learning_rate": 5e-3}
    output = run(**flags)
    losses = evaluations(output)
    step = min(losses, key=losses.get)
    assert best(output) == {"global_step": step, "eval_loss": losses[step]}
    assert step < 24
    again = run(name="again", dataset_name_or_path=data, model_name_or_path=output / "best", do_train=0)
    assert read_summary(again)["evaluation"]["eval_loss"] == pytest.approx(losses[step], abs=2e-6)


TWO_RANKS = pytest.mark.parametrize(
    "layout", [{"tensor_parallel_degree": 2}, {"pipeline_parallel_degree": 2}], ids=["tp2", "pp2"]
)


@pytest.mark.long
@TWO_RANKS
def test_the_best_model_of_two_ranks_is_whole(run, material, layout):
    """One process evaluates it as they did."""
    flags = {"max_steps": 2, "eval_steps": 1, "learning_rate": 1e-3}
    flags |= {"pipeline_parallel_config": "disable_p2p_cache_shape"}
    output = run(2, per_device_train_batch_size=4, gradient_accumulation_steps=2, **flags, **layout)
    again = run(name="again", model_name_or_path=output / "best", do_train=0)
    assert read_summary(again)["evaluation"]["eval_loss"] == pytest.approx(best(output)["eval_loss"], abs=2e-6)


@TWO_RANKS
def test_the_best_adapter_of_two_ranks_is_whole_and_small(ranks, run, material, tmp_path, layout):
    """It is merged like any other: make merge proves its layers and logits."""
    flags = {"lora": 1, "max_steps": 2, "eval_steps": 2, "pipeline_parallel_config": "disable_p2p_cache_shape"}
    output = run(2, per_device_train_batch_size=4, gradient_accumulation_steps=2, **flags, **layout)
    stages = layout.get("pipeline_parallel_degree", 1)
    files = sorted((output / "best").glob("*.safetensors"))
    assert len(files) == stages
    assert sum(one.stat().st_size for one in files) < (material / "model" / "model.safetensors").stat().st_size / 2
    merge = ["--model_name_or_path", material / "model", "--adapter_path", output / "best"]
    merge = [*map(str, merge), "--output_dir", str(tmp_path / "merged")]
    [[said]] = ranks(1, "tests.prediction.merged_logits_ranks:merge_all", [merge])
    assert said["exit_code"] == 0, said["stderr"]
    assert {name for file in files for name in load_file(file)} == {
        name for file in output.glob("*.safetensors") for name in load_file(file)
    }


def test_only_a_lower_loss_replaces_the_best(ranks, tmp_path):
    [found] = ranks(1, KEEP, str(tmp_path), [[1, 3.0], [2, 2.0], [3, 2.0], [4, float("nan")]], False)
    assert found == ["best.json", "of-rank-0-at-2"]
    assert [one.name for one in tmp_path.iterdir()] == ["best"]
    both = ranks(2, KEEP, str(tmp_path), [[5, 1.5]], True)
    assert both[0] == ["best.json", "of-rank-0-at-5", "of-rank-1-at-5"]


def test_a_run_that_goes_on_knows_its_best_and_a_new_one_does_not(ranks, tmp_path):
    ranks(1, KEEP, str(tmp_path), [[1, 3.0], [2, 2.0]], False)
    assert ranks(1, KEEP, str(tmp_path), [[3, 2.5]], True) == [["best.json", "of-rank-0-at-2"]]
    assert ranks(1, KEEP, str(tmp_path), [[1, 2.5]], False) == [["best.json", "of-rank-0-at-1"]]


def test_the_best_survives_a_kill_between_its_two_renames(ranks, tmp_path):
    ranks(1, KEEP, str(tmp_path), [[1, 3.0], [2, 2.0]], False)
    (tmp_path / "best").rename(tmp_path / ".best.old")
    assert ranks(1, KEEP, str(tmp_path), [[3, 2.5]], True) == [["best.json", "of-rank-0-at-2"]]
