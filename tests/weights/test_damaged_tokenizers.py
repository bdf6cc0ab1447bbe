"""Files of a tokenizer that are cut, garbled or of another kind: each reader refuses them in a sentence."""

import json
import random
import re
import shutil

import pytest

from data_tools.formats.errors import DataError
from data_tools.text.encoders import load_encoder
from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.errors import UserError
from launch.families.encoding import find_template
from launch.families.registry import FAMILIES
from launch.families.tokenizer_files import read_tokenizer
from launch.rehearsal.materials import documents
from launch.weights.tokenizer import export_tokenizer, import_tokenizer

CONFIGS = {
    "unknown class": b'{"tokenizer_class": "NobodysTokenizer"}',
    "class of another type": b'{"tokenizer_class": 5}',
    "token of another type": b'{"eos_token": ["</s>"], "bos_token": 5}',
    "added tokens of another type": b'{"added_tokens_decoder": {"x": "y"}}',
    "list": b"[]",
    "deep": b"[" * 100_000,
    "not UTF-8": b'{"eos_token": "\xff"}',
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Directories of both kinds of tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    root = tmp_path_factory.mktemp("tokenizers")
    texts = list(documents())[:50]
    save_tokenizer(root / "sentencepiece", train_tokenizer(texts, 384))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=384, special_tokens=["<s>", "</s>"]))
    (root / "json").mkdir()
    tokenizer.save(str(root / "json" / "tokenizer.json"))
    config = {"tokenizer_class": "PretrainedTokenizerFast", "eos_token": "</s>"}
    (root / "json" / "tokenizer_config.json").write_text(json.dumps(config))
    return root


@pytest.fixture(scope="module")
def damaged(whole, tmp_path_factory):
    """Copies with one file each that is empty, half, garbled, or a configuration of CONFIGS."""
    root, draw = tmp_path_factory.mktemp("damaged"), random.Random(1)
    for kind in ("sentencepiece", "json"):
        for file in sorted(path.name for path in (whole / kind).iterdir()):
            content = bytearray((whole / kind / file).read_bytes())
            garbled = bytes(draw.randrange(256) if draw.random() < 0.01 else byte for byte in content)
            for how, bytes_ in (("empty", b""), ("half", content[: len(content) // 2]), ("garbled", garbled)):
                shutil.copytree(whole / kind, root / f"{kind} {file} {how}")
                (root / f"{kind} {file} {how}" / file).write_bytes(bytes_)
        for how, values in CONFIGS.items():
            shutil.copytree(whole / kind, root / f"{kind} {how}")
            (root / f"{kind} {how}" / "tokenizer_config.json").write_bytes(values)
    model = shutil.copytree(whole / "sentencepiece", root / "sentencepiece no text") / "sentencepiece.bpe.model"
    model.write_bytes(re.sub(rb"(?<=\n.[a-z])[a-z]", b"\xff", model.read_bytes(), count=1))  # a piece
    shutil.copytree(whole / "json", root / "json slow")
    values = json.loads((whole / "json" / "tokenizer.json").read_text())
    values["pre_tokenizer"] = {"type": "Split", "behavior": "Isolated", "invert": False}
    values["pre_tokenizer"]["pattern"] = {"Regex": r".*\d{40}"}
    (root / "json slow" / "tokenizer.json").write_text(json.dumps(values))
    return sorted(root.iterdir())


def test_are_refused_without_paddle(damaged, tmp_path):
    readers = {
        "encoder": load_encoder,
        "ids": read_tokenizer,
        "template": lambda directory: find_template(None, directory, {"model_type": "llama"}),
    }
    outcomes = {}
    for directory in damaged:
        for name, read in readers.items():
            try:
                outcomes[directory.name, name] = read(directory) and ""
            except (DataError, UserError) as error:
                outcomes[directory.name, name] = str(error)
        (tmp_path / directory.name).mkdir()
        for convert in (import_tokenizer, export_tokenizer):
            try:
                convert(directory, tmp_path / directory.name, FAMILIES["llama"])
            except (DataError, UserError) as error:
                assert str(directory) in str(error)
    for reader in ("encoder", "ids"):
        assert "model is not a sentencepiece model, or is damaged" in outcomes["sentencepiece no text", reader]
    refused = outcomes["sentencepiece sentencepiece.bpe.model half", "encoder"]
    assert "sentencepiece.bpe.model is not a sentencepiece model, or is damaged" in refused
    assert "takes too long, such as for 4,096 characters" in outcomes["json slow", "encoder"]
    assert "tokenizer.json is no tokenizer" in outcomes["json tokenizer.json half", "encoder"]
    assert "a file of the tokenizer is damaged" in outcomes["json tokenizer.json empty", "ids"]
    assert "tokenizer_config.json: not JSON" in outcomes["json tokenizer_config.json half", "template"]
    assert "too many brackets within brackets" in outcomes["sentencepiece deep", "template"]


@pytest.mark.long
def test_are_refused_where_a_model_is_trained_or_asked(ranks, damaged, whole):
    directories = [str(one) for one in (*damaged, whole / "json", whole / "sentencepiece")]
    [outcomes] = ranks(1, "tests.weights.tokenizer_ranks:open_all", directories)
    assert outcomes[directories[-1]] == outcomes[directories[-2]] == "read"
    found = {directory.rpartition("/")[2]: outcome for directory, outcome in outcomes.items()}
    assert "takes too long, such as for 4,096 characters" in found.pop("json slow")
    assert {one for one in found.values() if not one.startswith("UserError: ")} <= {"read"}
    assert "NobodysTokenizer" in found["sentencepiece unknown class"]
    assert "`make import` writes it" in found["json unknown class"]
    assert "is not a sentencepiece model" in found["sentencepiece sentencepiece.bpe.model half"]
