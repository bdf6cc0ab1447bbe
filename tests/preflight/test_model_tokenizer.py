"""The tokenizer's ids and the configuration's, from each kind of tokenizer file."""

import json

import pytest

from data_tools.formats.errors import DataError
from data_tools.text.encoders import load_encoder
from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.tokenizer_files import TokenizerIds, read_tokenizer
from launch.preflight.model_files import check_tokenizer


@pytest.fixture(scope="module")
def trained():
    """A sentencepiece model of 300 ids: 0 <unk>, 1 <s>, 2 </s>, no pad."""
    return train_tokenizer(["some words, and some more words than those"] * 9, 300)


@pytest.fixture
def sentencepiece(tmp_path, trained):
    save_tokenizer(tmp_path / "tokenizer", trained)
    return tmp_path / "tokenizer"


def change(path, **values):
    path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | values))


def told(tokenizer, directory, fresh=False, **config) -> list[tuple[bool, str]]:
    """The findings for a tokenizer and a model of this configuration; vocab_size 300 unless told."""
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 300} | config))
    flags = {"model_name_or_path": [str(directory)], "tokenizer_name_or_path": [str(tokenizer)]}
    flags |= {"continue_training": ["0"]} if fresh else {}
    return [(one.ok, one.found) for one in check_tokenizer(RunConfig("launch/run_pretrain.py", flags))]


def test_sentencepiece_knows_its_own_roles_and_another_token_may_have_one(sentencepiece):
    assert read_tokenizer(sentencepiece) == TokenizerIds(300, {"unk": 0, "bos": 1, "eos": 2})
    change(sentencepiece / "tokenizer_config.json", pad_token={"content": "</s>"}, bos_token=None)
    assert read_tokenizer(sentencepiece).special == {"unk": 0, "bos": 1, "eos": 2, "pad": 2}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("added_tokens.json", {"<pad>": 300}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"300": {"content": "<pad>"}}, "pad_token": "<pad>"}),
    ],
)
def test_added_tokens_count(sentencepiece, file, content):
    change(sentencepiece / "special_tokens_map.json", pad_token="<pad>")
    change(sentencepiece / file, **content)
    assert read_tokenizer(sentencepiece) == TokenizerIds(301, {"unk": 0, "bos": 1, "eos": 2, "pad": 300})


def test_tokenizer_json_and_vocab_json(tmp_path):
    added = [{"id": 2, "content": "<|end|>"}, {"id": 7, "content": "<|pad|>"}]
    change(tmp_path / "tokenizer_config.json", eos_token="<|end|>", bos_token=None, pad_token={"content": "<|pad|>"})
    for vocab in ({"a": 0, "b": 1}, [["a", -1.0], ["b", -2.0]]):  # of BPE, of unigram
        change(tmp_path / "tokenizer.json", model={"vocab": vocab}, added_tokens=added)
        assert read_tokenizer(tmp_path) == TokenizerIds(8, {"eos": 2, "pad": 7})
    (tmp_path / "older").mkdir()
    change(tmp_path / "older" / "vocab.json", **{"a": 0, "b": 1, "</s>": 2})
    change(tmp_path / "older" / "special_tokens_map.json", eos_token="</s>", bos_token="<nowhere>")
    assert read_tokenizer(tmp_path / "older") == TokenizerIds(3, {"eos": 2})


DIFFERS = "{}_token_id is {} in {{}}/config.json, the tokenizer's {} is {}"


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}, [(True, "300 ids of 300")]),
        ({"vocab_size": 512}, [(True, "300 ids of 512")]),
        (
            {"fresh": True, "vocab_size": 4096},
            [(True, "300 ids of 304: the fresh model takes the tokenizer's vocabulary, not config.json's 4,096")],
        ),
        ({"vocab_size": 299}, [(False, "{}/tokenizer has 300 ids, the model's vocabulary 299")]),
        ({"bos_token_id": 9}, [(False, DIFFERS.format("bos", 9, "bos", 1))]),
        ({"eos_token_id": 9}, [(False, DIFFERS.format("eos", 9, "eos", 2))]),
        ({"unk_token_id": 9}, [(False, DIFFERS.format("unk", 9, "unk", 0))]),
        # As in DeepSeek-R1-Distill-Qwen, whose config.json has the ids of the model that it is made from.
        (
            {"bos_token_id": 9, "eos_token_id": 2},
            [(True, "300 ids of 300: a text begins with the tokenizer's bos, 1, not with config.json's, 9")],
        ),
        (
            {"bos_token_id": 9, "eos_token_id": 8},
            [(False, DIFFERS.format("bos", 9, "bos", 1)), (False, DIFFERS.format("eos", 8, "eos", 2))],
        ),
        ({"eos_token_id": [9, 2]}, [(True, "300 ids of 300")]),  # several ends are allowed
        ({"eos_token_id": [9, 8]}, [(False, DIFFERS.format("eos", 9, "eos", 2))]),
    ],
)
def test_ids_of_the_tokenizer_against_the_configurations(sentencepiece, tmp_path, config, found):
    assert told(sentencepiece, tmp_path, **config) == [(ok, text.format(tmp_path)) for ok, text in found]


def test_the_padding_is_compared_where_both_have_one(sentencepiece, tmp_path):
    change(sentencepiece / "tokenizer_config.json", pad_token="</s>")
    differs = DIFFERS.format("pad", 0, "pad", 2).format(tmp_path)
    assert told(sentencepiece, tmp_path, pad_token_id=0) == [(False, differs)]
    for stated in (2, None, -1):
        assert told(sentencepiece, tmp_path, pad_token_id=stated)[0][0]


@pytest.mark.parametrize("file", ["sentencepiece.bpe.model", "tokenizer_config.json", "added_tokens.json"])
def test_a_damaged_file_is_told(sentencepiece, tmp_path, file):
    (sentencepiece / file).write_bytes(b"{broken")
    [(ok, found)] = told(sentencepiece, tmp_path)
    damaged = f"{sentencepiece}: a file of the tokenizer is damaged"
    if file.endswith(".model"):
        damaged = f"{sentencepiece / file} is not a sentencepiece model, or is damaged"
    assert not ok and found.startswith(damaged)


def test_a_tiktoken_file_is_left_aside_beside_a_tokenizer_json_and_named_alone(sentencepiece, tmp_path):
    """A sentencepiece model that is cut off stays damaged."""
    folder = tmp_path / "tiktoken"
    folder.mkdir()
    (folder / "tokenizer.model").write_text("IQ== 0\nIg== 1\n")
    with pytest.raises(
        UserError, match="tokenizer.model is a file of tiktoken, .* Put the tokenizer.json of the model"
    ):
        read_tokenizer(folder)
    with pytest.raises(DataError, match="tokenizer.model is a file of tiktoken"):
        load_encoder(folder)
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0, "b": 7}}}))
    assert read_tokenizer(folder).size == 8
    whole = (sentencepiece / "sentencepiece.bpe.model").read_bytes()
    (folder / "tokenizer.model").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="tokenizer.model is not a sentencepiece model, or is damaged"):
        read_tokenizer(folder)


def test_a_name_or_a_directory_without_tokenizer_is_no_fault(tmp_path):
    assert told("facebook/llama-7b", tmp_path) == told(tmp_path, tmp_path) == []
