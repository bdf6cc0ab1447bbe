"""Data made with another tokenizer than the run's."""

import json
import re

import pytest

from data_tools.formats.tokens.summary import summary_path
from data_tools.merge import merge_corpora
from data_tools.tokenize import tokenize_files
from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch import preflight
from launch.config.run_config import RunConfig

TEXTS = {"own": "some words, and some more words than those", "other": "a text of another kind, in other letters: xyz"}


@pytest.fixture
def folder(tmp_path):
    """own, other: tokenizers of 300 ids; corpus: made with own."""
    for name, text in TEXTS.items():
        save_tokenizer(tmp_path / name, train_tokenizer([text] * 9, 300))
    (tmp_path / "text.jsonl").write_text(json.dumps({"text": TEXTS["own"]}) + "\n")
    tokenize_files([str(tmp_path / "text.jsonl")], tmp_path / "own", tmp_path / "corpus", workers=0)
    return tmp_path


def told(data, model, tokenizer=None) -> list[str]:
    flags = {"input_dir": data, "model_name_or_path": model, "tokenizer_name_or_path": tokenizer}
    stated = {name: [str(value)] for name, value in flags.items() if value}
    findings = preflight.run(RunConfig("launch/run_pretrain.py", stated))
    return [one.found for one in findings if " was made with " in one.found and not one.ok and one.fix]


def test_another_tokenizer_of_as_many_ids_is_a_fault(folder):
    assert told(folder / "corpus", folder / "own") == []
    assert told(folder / "corpus", folder / "other", folder / "own") == []
    for flags in ((folder / "other",), (folder / "own", folder / "other")):
        (found,) = told(folder / "corpus", *flags)
        assert re.fullmatch(
            rf"{folder}/corpus was made with a tokenizer of 300 ids \(SHA-256 (\w{{12}})...\), "
            rf"the run's {folder}/other/sentencepiece.bpe.model is a tokenizer of 300 ids "
            r"\(SHA-256 (?!\1)\w{12}...\)",
            found,
        )
    merge_corpora([str(folder / "corpus")], folder / "merged")  # knows the hash alone
    assert told(folder / "merged", folder / "own") == []
    (found,) = told(folder / "merged", folder / "other")
    assert found.startswith(f"{folder}/merged was made with a tokenizer (SHA-256 ")
    assert told(folder / "corpus", "facebook/llama-7b") == []
    assert told(folder / "nowhere", folder / "other") == []
    summary_path(folder / "corpus").unlink()
    assert told(folder / "corpus", folder / "other") == []


def test_a_tokenizer_json_is_told_by_its_size(folder):
    """Saved again it has other bytes and the same ids."""
    from tokenizers import Tokenizer, models

    for name, size in (("same", 300), ("larger", 301)):
        (folder / name).mkdir()
        vocabulary = {f"w{number}": number for number in range(size)}
        Tokenizer(models.WordLevel(vocabulary, "w0")).save(str(folder / name / "tokenizer.json"))
    assert told(folder / "corpus", folder / "same") == []
    (found,) = told(folder / "corpus", folder / "larger")
    assert "larger/tokenizer.json is a tokenizer of 301 ids" in found
