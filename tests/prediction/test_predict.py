"""predict.py as a user meets it: base, LoRA, prefix and merged model; texts, files and pipes; one process and two."""

import json

import pytest

from data_tools.dialogues.questions import text_question
from launch.reporting.records import read_summary
from tests.store import kept
from tests.training.finetune_material import argv, write_first

RANKS = "tests.prediction.predict_ranks"
TOO_LONG, TOO_LONG_SAID = {"max_new_tokens": 100_000}, "--max_new_tokens: found 100000 after a prompt of"
EARLIER = '{"src": "a", "prediction": "b"}\n'
MISTAKES = {  # name: (flags, what is said)
    "length": (TOO_LONG, TOO_LONG_SAID),
    "adapter": ({"adapter_path": "{root}/data"}, "data: no adapter: neither lora_config.json nor prefix_config.json"),
    "model": ({"model_name_or_path": "{root}/nowhere"}, "--model_name_or_path: '{root}/nowhere' is no directory"),
    "data": ({"data_file": "{root}/broken.json"}, "broken.json:2: not JSON"),
    "template": ({"chat_template": "nobody"}, "--chat_template: found 'nobody', allowed: baichuan"),
    "system": ({"system": "s"}, "--system: found beside --data_file, whose rows have their own: "),
    "in the model": ({"output_file": "{root}/model/a.json"}, "model/a.json is in {root}/model, which is read."),
    "in the adapter": (
        {"adapter_path": "{root}/lora", "output_file": "{root}/lora/a.json"},
        "--output_file: {root}/lora/a.json is in {root}/lora, which is read. Name a file in another folder.",
    ),
    "no answers": (
        {"output_file": "{root}/data/train.json"},
        "--output_file: {root}/data/train.json is there and has no earlier answers. Name another, or remove it.",
    ),
    "both": ({"prompt": "a"}, "--prompt and --data_file: found both, give one."),
}
ROWS = {  # name: (model, adapter, flags) of runs that write a file
    "base": ("model", None, {}),
    "lora": ("model", "lora", {"batch_size": 3}),
    "merged": ("merged", None, {}),
    "prefix": ("model", "prefix", {"batch_size": 1}),
    "prefixes": ("model", "prefix", {"batch_size": 8}),
    "drawn": ("model", "prefix", {"temperature": 2.0, "top_k": 50, "top_p": 0.9, "seed": 1}),
    "drawn again": ("model", "prefix", {"temperature": 2.0, "top_k": 50, "top_p": 0.9, "seed": 1}),
    "drawn otherwise": ("model", "prefix", {"temperature": 2.0, "top_k": 50, "top_p": 0.9, "seed": 2}),
}


@pytest.fixture(scope="module")
def trained(ranks):
    """A directory with model, eight dialogues in data, lora which has learnt these by heart, and merged of both."""

    def make(root) -> None:
        ranks(1, "tests.training.finetune_material:make_material", str(root))
        data = write_first(root / "pairs", root / "data", 8, shortest=True)
        by_heart = {"lora": 1, "learning_rate": 1e-2, "max_steps": 60, "do_eval": 1, "eval_steps": 1000}
        flags = argv(root, root / "lora", dataset_name_or_path=data, **by_heart)
        [said] = ranks(1, "tests.training.finetune_ranks:finetune", flags)
        assert said["exit_code"] == 0, said["stderr"]
        assert read_summary(root / "lora")["evaluation"]["eval_accuracy"] == 1.0
        merge = ["--adapter_path", str(root / "lora"), "--output_dir", str(root / "merged")]
        [[said]] = ranks(1, "tests.runs_ranks:train_all", "commands.merge", [merge])
        assert said["exit_code"] == 0, said["stderr"]
        ranks(1, f"{RANKS}:make_prefix", str(root / "model"), str(root / "prefix"))
        (root / "broken.json").write_text('{"src": "a"}\n{"src"\n')

    return kept("predict", make)[0]


def flags(root, model: str = "model", adapter: str | None = None, **more) -> list[str]:
    values = {"model_name_or_path": root / model, "max_new_tokens": 40, "device": "cpu"} | more
    if adapter:
        values["adapter_path"] = root / adapter
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def rows(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def dialogues(trained) -> list[dict]:
    return rows(trained / "data" / "dev.json")


@pytest.fixture(scope="module")
def said(ranks, trained, dialogues, tmp_path_factory) -> dict[str, dict]:
    """What is said in each run, and under "rows" what it has written."""
    out = tmp_path_factory.mktemp("predict")
    first, second = (row["src"] for row in dialogues[:2])
    file = {"data_file": trained / "data" / "dev.json"}
    jobs = {
        name: [flags(trained, model, adapter, **file, output_file=out / f"{name}.json", **more), ""]
        for name, (model, adapter, more) in ROWS.items()
    }
    for name, (more, _) in MISTAKES.items():
        more = {key: str(value).format(root=trained) for key, value in more.items()}
        jobs[name] = [flags(trained, **file | {"output_file": out / "none" / f"{name}.json"} | more), ""]
    for name in ("earlier", "lora"):
        (out / f"{name}.json").write_text(EARLIER)
    jobs |= {
        "prompt": [flags(trained, adapter="lora", prompt=first), ""],
        "told": [flags(trained, adapter="lora", prompt=first, system="Be brief."), ""],
        "pipe": [flags(trained, "merged"), f"{first}\n\n{second}\n"],
        "printed": [flags(trained, "merged", **file), ""],
        "cut": [flags(trained, **file, src_length=3), ""],
        "earlier": [flags(trained, **file, output_file=out / "earlier.json", **TOO_LONG), ""],
    }
    [found] = ranks(1, f"{RANKS}:predict_all", list(jobs.values()))
    found = dict(zip(jobs, found, strict=True))
    for name in ROWS:
        assert found[name]["exit_code"] == 0, found[name]["stderr"]
        found[name]["rows"] = rows(out / f"{name}.json")
    return found | {"out": out}


def test_base_and_adapter_say_what_was_learnt_and_the_base_does_not(said, dialogues):
    assert said["lora"]["rows"] == [row | {"prediction": row["tgt"]} for row in dialogues]
    assert said["merged"]["rows"] == said["lora"]["rows"]
    assert all(row["prediction"] != row["tgt"] for row in said["base"]["rows"])


def test_a_prefix_changes_the_answers_alike_in_every_batch(said):
    assert said["prefix"]["rows"] == said["prefixes"]["rows"]
    assert [row["prediction"] for row in said["prefix"]["rows"]] != [row["prediction"] for row in said["base"]["rows"]]


def test_drawing_depends_on_the_seed_alone(said):
    assert said["drawn"]["rows"] == said["drawn again"]["rows"] != said["drawn otherwise"]["rows"]


def test_a_text_and_the_lines_of_a_pipe_are_answered_one_by_one(said, dialogues):
    first, second = dialogues[:2]
    assert said["prompt"]["stdout"] == first["tgt"] + "\n"
    assert said["told"]["exit_code"] == 0 and "chat template: llama" in said["told"]["stderr"]
    question = text_question("Who?", "Be brief.")
    said_before = [(message.role, message.text) for message in question.dialogue.messages]
    assert question.chat and said_before == [("system", "Be brief."), ("user", "Who?")]
    assert said["pipe"]["stdout"] == f"{first['tgt']}\n{second['tgt']}\n"


def test_without_an_output_file_rows_are_printed(said):
    assert [json.loads(line) for line in said["printed"]["stdout"].splitlines()] == said["lora"]["rows"]


@pytest.mark.long
def test_weights_in_bfloat16_become_float16_on_a_card_without_it(ranks, trained):
    assert ranks(1, f"{RANKS}:answering_dtype", str(trained / "model")) == ["paddle.float16"]


@pytest.mark.long
def test_two_processes_say_what_one_says(ranks, trained, said, dialogues, tmp_path):
    jobs = [
        [flags(trained, *ROWS[name][:2], data_file=trained / "data" / "dev.json", output_file=tmp_path / name), ""]
        for name in ("lora", "prefix", "merged")
    ]
    jobs.append([flags(trained, "merged"), "".join(f"{row['src']}\n" for row in dialogues[:2])])
    first, second = ranks(2, f"{RANKS}:predict_all", jobs)
    assert [one["exit_code"] for one in (*first, *second)] == [0] * 8, first + second
    for name in ("lora", "prefix", "merged"):
        assert rows(tmp_path / name) == said[name]["rows"], name
    assert [one[-1]["stdout"] for one in (first, second)] == [said["pipe"]["stdout"], ""]


def test_long_questions_are_cut_and_counted(said):
    assert "cut to their last 3 tokens (--src_length): 8 questions" in said["cut"]["stderr"]


def test_mistakes_are_named_and_nothing_is_written(said, trained):
    for name, (_, message) in MISTAKES.items():
        assert said[name]["exit_code"] == 2, name
        assert message.format(root=trained) in said[name]["stderr"]
    assert not (said["out"] / "none").exists() or not list((said["out"] / "none").iterdir())
    assert said["earlier"]["exit_code"] == 2 and (said["out"] / "earlier.json").read_text() == EARLIER
    assert TOO_LONG_SAID in said["earlier"]["stderr"]


def test_a_model_with_more_ids_than_its_tokenizer_draws_those_of_the_tokenizer(ranks, tmp_path):
    """A random one of 1,024 would draw one in three of its tokens from the others in no time."""
    [found] = ranks(1, f"{RANKS}:predict_wide", str(tmp_path))
    assert found["known"] == [300, 301]
    assert found["said"]["exit_code"] == 0, found["said"]["stderr"]
    assert len(found["said"]["stdout"].strip()) > 20
    assert found["lacking"]["exit_code"] == 2
    assert "but the model has 40 ids, 0 to 39: its files are of another model" in found["lacking"]["stderr"]
