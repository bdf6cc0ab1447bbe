"""ChatGLM-6B and GLM from a Hugging Face directory to answers: imported, fine-tuned, evaluated, asked."""

import json
from itertools import islice
from pathlib import Path

import pytest

from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.rehearsal.dialogues import write_dialogues
from launch.rehearsal.text import documents
from launch.reporting.records import read_summary
from launch.weights.importing import import_directory
from tests.training import prefix_lm_material
from tests.training.finetune_material import argv, write_first

FINETUNE = "tests.training.finetune_ranks:finetune"
PREDICT = "tests.prediction.predict_ranks:predict"
ROWS = 12
METHODS = {
    "chatglm": {"learning_rate": 1e-2, "max_steps": 60},
    "glm": {"lora": 1, "lora_rank": 16, "learning_rate": 2e-2, "max_steps": 100},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """pairs, and for each family its directory with model, which is imported."""
    root = tmp_path_factory.mktemp("prefix-lm")
    write_dialogues(root)
    write_first(root / "pairs", root / "few", ROWS, shortest=True)
    for name, theirs in prefix_lm_material.make(root / "theirs").items():
        (root / name).mkdir()
        import_directory(theirs, root / name / "model", None, 1 << 30)
    return root


@pytest.fixture(scope="module")
def trained(ranks, root) -> dict[str, Path]:
    """By family, the output of a run on few rows that had to answer its questions, too."""
    for name, flags in METHODS.items():
        flags = {"dataset_name_or_path": root / "few", "cpu_fast": "auto", **flags}
        flags |= {"per_device_train_batch_size": ROWS, "do_eval": 1, "eval_steps": 1000, "eval_with_do_generation": 1}
        [said] = ranks(1, FINETUNE, argv(root / name, root / name / "out", **flags))
        assert said["exit_code"] == 0, said["stderr"]
    return {name: root / name / "out" for name in METHODS}


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_evaluation_and_predict_give_what_was_learnt_on_one_process_and_on_two(ranks, root, trained, tmp_path, name):
    found = read_summary(trained[name])["evaluation"]
    assert found["eval_accuracy"] == 1.0
    assert [found[f"eval_{score}"] for score in ("rouge1", "rouge2", "rougel")] == pytest.approx([100, 100, 100])
    lora = "lora" in METHODS[name]
    flags = {
        "model_name_or_path": root / name / "model" if lora else trained[name],
        **({"adapter_path": trained[name]} if lora else {}),
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


@pytest.mark.long
def test_a_tokenizer_without_the_marks_is_refused(ranks, root, tmp_path):
    save_tokenizer(tmp_path / "another", train_tokenizer(islice(documents(), 50), prefix_lm_material.PIECES))
    flags = {"dataset_name_or_path": root / "few", "tokenizer_name_or_path": tmp_path / "another"}
    [said] = ranks(1, FINETUNE, argv(root / "glm", tmp_path / "out", **flags))
    assert said["exit_code"] == 2
    assert "the tokenizer has no <|endofpiece|>, which stands between prompt and answer of GLM or" in said["stderr"]


@pytest.mark.long
def test_a_configuration_that_knows_another_mask_is_refused(ranks, root, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for file in (root / "chatglm" / "model").iterdir():
        (model / file.name).symlink_to(file)
    config = json.loads((model / "config.json").read_text()) | {"gmask_token_id": 6}
    (model / "config.json").unlink()
    (model / "config.json").write_text(json.dumps(config))
    flags = argv(tmp_path, tmp_path / "out", dataset_name_or_path=root / "few")
    [said] = ranks(1, FINETUNE, flags)
    assert said["exit_code"] == 2
    assert "gmask_token_id is 6 in the model's config.json, but [gMASK] is 7 in the tokenizer" in said["stderr"]
