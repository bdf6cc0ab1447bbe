"""ChatGLM-6B, GLM and OPT from a Hugging Face directory to answers: imported, fine-tuned, evaluated, asked."""

import json
from pathlib import Path

import pytest

from launch.rehearsal.materials import write_dialogues
from launch.reporting.records import read_summary
from launch.weights.model_directories import import_directory
from tests.training import imported_material
from tests.training.finetune_material import argv, write_first

FINETUNE = "tests.training.finetune_ranks:finetune"
PREDICT = "tests.prediction.predict_ranks:predict"
ROWS = 12
LORA = {"lora": 1, "lora_rank": 16, "max_steps": 100}
CASES = {
    "chatglm": ("chatglm", {"learning_rate": 1e-2, "max_steps": 60}),
    "glm-lora": ("glm", LORA | {"learning_rate": 2e-2}),
    "opt": ("opt", {"learning_rate": 1e-2, "max_steps": 60}),
    "opt-lora": ("opt", LORA | {"learning_rate": 1e-2, "lr_scheduler_type": "linear"}),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """pairs, and for each family its directory with model, which is imported."""
    root = tmp_path_factory.mktemp("imported")
    write_dialogues(root, dev=64)
    write_first(root / "pairs", root / "few", ROWS, shortest=True)
    for name, theirs in imported_material.make(root / "theirs").items():
        (root / name).mkdir()
        import_directory(theirs, root / name / "model", None, 1 << 30)
    return root


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "case", [pytest.param(one, marks=pytest.mark.long if one == "glm-lora" else pytest.mark.nightly) for one in CASES]
)
def test_evaluation_and_predict_give_what_was_learnt_on_one_process_and_on_two(ranks, root, tmp_path, case):
    family, method = CASES[case]
    flags = {"dataset_name_or_path": root / "few", "cpu_fast": "auto", "per_device_train_batch_size": ROWS}
    flags |= {"do_eval": 1, "eval_steps": 1000, "eval_with_do_generation": 1}
    trained = tmp_path / "out"
    [said] = ranks(1, FINETUNE, argv(root / family, trained, **flags, **method))
    assert said["exit_code"] == 0, said["stderr"]
    found = read_summary(trained)["evaluation"]
    assert found["eval_accuracy"] == 1.0
    assert [found[f"eval_{score}"] for score in ("rouge1", "rouge2", "rougel")] == pytest.approx([100, 100, 100])
    adapter = {"adapter_path": trained} if "lora" in method else {}
    flags = {
        "model_name_or_path": root / family / "model" if adapter else trained,
        **adapter,
        "data_file": root / "few" / "dev.json",
        "output_file": tmp_path / "answers.json",
        "max_new_tokens": 60,
        "batch_size": 5,
        "device": "cpu",
    }
    words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    for processes in (1, 2):
        for said in ranks(processes, PREDICT, words):
            assert said["exit_code"] == 0, said["stderr"]
        assert rows(tmp_path / "answers.json") == [
            row | {"prediction": row["tgt"]} for row in rows(root / "few" / "dev.json")
        ]


def with_configuration(model: Path, directory: Path, **changes) -> Path:
    """The model with another config.json."""
    directory.mkdir()
    for file in model.iterdir():
        (directory / file.name).symlink_to(file)
    config = json.loads((model / "config.json").read_text()) | changes
    (directory / "config.json").unlink()
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.long
def test_two_ranks_that_cannot_divide_the_vocabulary_are_refused(ranks, root, tmp_path):
    model = with_configuration(root / "opt" / "model", tmp_path / "model", vocab_size=401)
    flags = {"dataset_name_or_path": root / "few", "tensor_parallel_degree": 2}
    first = ranks(2, FINETUNE, argv(tmp_path, tmp_path / "out", **flags))[0]
    assert first["exit_code"] == 2
    assert "2 does not divide the vocabulary of 401" in first["stderr"]
    for said in ranks(2, PREDICT, ["--model_name_or_path", str(model), "--prompt", "a", "--device", "cpu"]):
        assert said["exit_code"] == 2
        assert "2 processes cannot divide this model's vocabulary, 401. Use 1:" in said["stderr"]
