"""Training a tokenizer: special tokens, nothing lost, the same file twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_tools.formats.errors import DataError
from data_tools.text.encoders import load_encoder, load_sentencepiece
from data_tools.tokenizer import MODEL_NAME, save_tokenizer, train_tokenizer

ROOT = Path(__file__).resolve().parents[2]
AWKWARD = [
    " ",
    "   leading and trailing   ",
    "\n\n\tx\r\n",
    "def f(x):\n        return  x\n",
    "中文字符，和标点。",
    "😀 é ñ \u2028 \x00 \x7f \ufeff",
    "</s> <s> <unk> <0x0A>",
    "1234567890",
]


@pytest.fixture(params=["bpe", "unigram"], scope="module")
def trained(request, sources):
    return request.param, train_tokenizer(sources[:20], 600, request.param)


@pytest.fixture
def tokenizer(trained, tmp_path):
    save_tokenizer(tmp_path, trained[1])
    return load_sentencepiece(tmp_path / MODEL_NAME)


def test_llama_special_tokens(tokenizer):
    assert tokenizer.get_piece_size() == 600
    assert [tokenizer.id_to_piece(i) for i in range(5)] == ["<unk>", "<s>", "</s>", "\n", "<0x00>"]
    assert (tokenizer.unk_id(), tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.pad_id()) == (0, 1, 2, -1)


def test_any_text_comes_back(tokenizer, sources):
    for text in sources + AWKWARD:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert min(ids) > 2  # text that spells a special token is text


def test_a_text_begins_as_a_line_does(tokenizer):
    assert tokenizer.encode("import os\nimport os") == [
        *tokenizer.encode("import os"),
        3,
        *tokenizer.encode("import os"),
    ]


def test_no_piece_crosses_a_word_or_a_line(tokenizer):
    pieces = [tokenizer.id_to_piece(i) for i in range(600)]
    assert all("▁" not in piece.lstrip("▁") for piece in pieces)
    assert [piece for piece in pieces if "\n" in piece] == ["\n"]
    assert any(len(piece) >= 4 and set(piece) == {"▁"} for piece in pieces)  # indentation is one token


def test_the_same_input_gives_the_same_bytes(trained, sources):
    model_type, model = trained
    assert train_tokenizer(sources[:20], 600, model_type) == model


def test_a_vocabulary_that_does_not_fit_the_text():
    with pytest.raises(DataError, match="--vocab_size 5000 is too high for so little text: take [0-9]+ or less"):
        train_tokenizer(["a few words", "and a few more"], 5000)
    with pytest.raises(DataError, match="--vocab_size 100 is too small: these texts need at least [0-9]+"):
        train_tokenizer(["a few words", "and a few more"], 100)


def test_the_smallest_vocabulary_named_is_the_smallest():
    with pytest.raises(DataError) as error:
        train_tokenizer(["a few words", "and a few more"], 100)
    smallest = int(str(error.value).split("at least ")[1].rstrip("."))
    assert train_tokenizer(["a few words", "and a few more"], smallest)
    with pytest.raises(DataError, match=f"--vocab_size {smallest - 1} is too small"):
        train_tokenizer(["a few words", "and a few more"], smallest - 1)


def test_a_directory_without_a_tokenizer(tmp_path):
    with pytest.raises(DataError, match="looked for sentencepiece.bpe.model, tokenizer.model, "):
        load_encoder(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="tokenizer.model is not a sentencepiece model"):
        load_encoder(tmp_path)


def test_another_tokenizer_is_left_alone_and_the_same_may_be_written_again(tmp_path):
    def train(vocab_size: int) -> subprocess.CompletedProcess:
        words = f"-m data_tools.tokenizer --input texts.txt --output tok --vocab_size {vocab_size}".split()
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)

    (tmp_path / "texts.txt").write_text("one two three four five six seven eight nine ten\n" * 20)
    assert [train(280).returncode, train(280).returncode] == [0, 0]
    before = (tmp_path / "tok" / MODEL_NAME).read_bytes()
    refused = train(282)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "error: tok has another tokenizer, sentencepiece.bpe.model, which " in refused.stderr
    assert "Name another --output, or remove tok first." in refused.stderr
    assert (tmp_path / "tok" / MODEL_NAME).read_bytes() == before
