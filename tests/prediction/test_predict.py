"""predict.py as a user meets it: base, LoRA, prefix and merged model; texts, files and pipes; one process and two."""

import json

import pytest

from launch.reporting.records import read_summary
from tests.training.finetune_material import argv, write_first

PREDICT = "tests.prediction.predict_ranks:predict"


@pytest.fixture(scope="module")
def trained(ranks, tmp_path_factory):
    """A directory with model, eight dialogues in data, lora which has learnt these by heart, and merged of both."""
    root = tmp_path_factory.mktemp("predict")
    ranks(1, "tests.training.finetune_material:make_material", str(root))
    data = write_first(root / "pairs", root / "data", 8, shortest=True)
    flags = argv(root, root / "lora", dataset_name_or_path=data, lora=1, learning_rate=1e-2, max_steps=60, do_eval=1)
    [said] = ranks(1, "tests.training.finetune_ranks:finetune", [*flags, "--eval_steps", "1000"])
    assert said["exit_code"] == 0, said["stderr"]
    assert read_summary(root / "lora")["evaluation"]["eval_accuracy"] == 1.0
    merge = ["--adapter_path", str(root / "lora"), "--output_dir", str(root / "merged")]
    [[said]] = ranks(1, "tests.prediction.merged_logits_ranks:merge_all", [merge])
    assert said["exit_code"] == 0, said["stderr"]
    ranks(1, "tests.prediction.predict_ranks:make_prefix", str(root / "model"), str(root / "prefix"))
    return root


def flags(root, model: str = "model", adapter: str | None = None, **more) -> list[str]:
    values = {"model_name_or_path": root / model, "max_new_tokens": 40, "device": "cpu"} | more
    if adapter:
        values["adapter_path"] = root / adapter
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def rows(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def answers(ranks, trained, tmp_path):
    """answers(...): the rows of a run on the dialogues, on so many processes."""

    def ask(model: str = "model", adapter: str | None = None, processes: int = 1, **more) -> list[dict]:
        more = {"data_file": trained / "data" / "dev.json", "output_file": tmp_path / "out.json"} | more
        for said in ranks(processes, PREDICT, flags(trained, model, adapter, **more)):
            assert said["exit_code"] == 0, said["stderr"]
        return rows(tmp_path / "out.json")

    return ask


def test_base_and_adapter_say_what_was_learnt_and_the_base_does_not(answers, trained):
    dialogues = rows(trained / "data" / "dev.json")
    found = answers(adapter="lora", batch_size=3)
    assert found == [row | {"prediction": row["tgt"]} for row in dialogues]
    assert all(row["prediction"] != row["tgt"] for row in answers())


def test_the_merged_model_says_the_same(answers):
    assert answers("merged") == answers(adapter="lora")


def test_a_prefix_changes_the_answers_alike_in_every_batch(answers):
    alone = answers(adapter="prefix", batch_size=1)
    assert alone == answers(adapter="prefix", batch_size=8)
    assert [row["prediction"] for row in alone] != [row["prediction"] for row in answers()]


@pytest.mark.parametrize(
    ("model", "adapter"),
    [
        ("model", "lora"),
        pytest.param("model", "prefix", marks=pytest.mark.long),
        pytest.param("merged", None, marks=pytest.mark.long),
    ],
)
def test_two_processes_say_what_one_says(answers, model, adapter):
    assert answers(model, adapter, processes=2) == answers(model, adapter)


def test_a_text_and_the_lines_of_a_pipe_are_answered_one_by_one(ranks, trained):
    first, second = rows(trained / "data" / "dev.json")[:2]
    [said] = ranks(1, PREDICT, flags(trained, adapter="lora", prompt=first["src"]))
    assert said["stdout"] == first["tgt"] + "\n"
    [said] = ranks(1, PREDICT, flags(trained, "merged"), f"{first['src']}\n\n{second['src']}\n")
    assert said["stdout"] == f"{first['tgt']}\n{second['tgt']}\n"
    both = ranks(2, PREDICT, flags(trained, "merged"), f"{first['src']}\n{second['src']}\n")
    assert [one["stdout"] for one in both] == [said["stdout"], ""]


def test_without_an_output_file_rows_are_printed(ranks, trained):
    [said] = ranks(1, PREDICT, flags(trained, "merged", data_file=trained / "data" / "dev.json"))
    assert [json.loads(line) for line in said["stdout"].splitlines()] == [
        row | {"prediction": row["tgt"]} for row in rows(trained / "data" / "dev.json")
    ]


@pytest.mark.long
def test_drawing_depends_on_the_seed_alone(answers):
    draw = {"adapter": "prefix", "temperature": 2.0, "top_k": 50, "top_p": 0.9}
    assert answers(**draw, seed=1) == answers(**draw, seed=1) != answers(**draw, seed=2)


def test_long_questions_are_cut_and_counted(ranks, trained):
    [said] = ranks(1, PREDICT, flags(trained, data_file=trained / "data" / "dev.json", src_length=3))
    assert "cut to their last 3 tokens (--src_length): 8 questions" in said["stderr"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_new_tokens": 100_000}, "--max_new_tokens: found 100000 after a prompt of"),
        ({"adapter_path": "{root}/data"}, "data: no adapter: neither lora_config.json nor prefix_config.json"),
        ({"model_name_or_path": "{root}/nowhere"}, "--model_name_or_path: '{root}/nowhere' is no directory"),
        ({"data_file": "{root}/broken.json"}, "broken.json:2: not JSON"),
        ({"chat_template": "nobody"}, "--chat_template: found 'nobody', allowed: baichuan"),
        ({"prompt": "a"}, "--prompt and --data_file: found both, give one."),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_mistakes_are_named_and_nothing_is_written(ranks, trained, tmp_path, change, message):
    (trained / "broken.json").write_text('{"src": "a"}\n{"src"\n')
    changes = {key: str(value).format(root=trained) for key, value in change.items()}
    given = {"data_file": trained / "data" / "dev.json", "output_file": tmp_path / "out.json"} | changes
    [said] = ranks(1, PREDICT, flags(trained, **given))
    assert said["exit_code"] == 2
    assert message.format(root=trained) in said["stderr"]
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_ends_early_leaves_an_earlier_file_as_it_was(ranks, trained, tmp_path):
    (tmp_path / "out.json").write_text("earlier\n")
    more = {"data_file": trained / "data" / "dev.json", "output_file": tmp_path / "out.json", "max_new_tokens": 100_000}
    [said] = ranks(1, PREDICT, flags(trained, **more))
    assert said["exit_code"] == 2
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("out.json", "earlier\n")]


def test_a_model_with_more_ids_than_its_tokenizer_draws_those_of_the_tokenizer(ranks, tmp_path):
    """A random one of 1,024 would draw one in three of its tokens from the others in no time."""
    ranks(1, "tests.prediction.predict_ranks:make_wide", str(tmp_path))
    assert ranks(1, "tests.prediction.predict_ranks:known_ids", str(tmp_path), "<more>")[0] == [300, 301]
    words = ["--model_name_or_path", str(tmp_path), "--prompt", "some", "--temperature", "1", "--max_new_tokens", "40"]
    [said] = ranks(1, PREDICT, [*words, "--device", "cpu"])
    assert said["exit_code"] == 0, said["stderr"]
    assert len(said["stdout"].strip()) > 20
