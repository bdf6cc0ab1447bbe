"""Training a tokenizer: special tokens, nothing lost, the same file twice."""

import pytest

from data_tools.formats.errors import DataError
from data_tools.text.encoders import load_encoder, load_sentencepiece
from data_tools.tokenizer import MODEL_NAME, save_tokenizer, train_tokenizer

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


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_trained_tokenizer(model_type, sources, tmp_path):
    model = train_tokenizer(sources[:5], 500, model_type)
    assert train_tokenizer(sources[:5], 500, model_type) == model, "the same input gives the same bytes"
    save_tokenizer(tmp_path, model)
    tokenizer = load_sentencepiece(tmp_path / MODEL_NAME)
    pieces = [tokenizer.id_to_piece(i) for i in range(tokenizer.get_piece_size())]
    assert len(pieces) == 500 and pieces[:5] == ["<unk>", "<s>", "</s>", "\n", "<0x00>"]
    assert (tokenizer.unk_id(), tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.pad_id()) == (0, 1, 2, -1)
    for text in sources[:40] + AWKWARD:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert min(ids) > 2  # text that spells a special token is text
    line = tokenizer.encode("import os")
    assert tokenizer.encode("import os\nimport os") == [*line, 3, *line], "a text begins as a line does"
    # No piece crosses a word or a line, and indentation is one token.
    assert all("▁" not in piece.lstrip("▁") for piece in pieces)
    assert [piece for piece in pieces if "\n" in piece] == ["\n"]
    assert any(len(piece) >= 4 and set(piece) == {"▁"} for piece in pieces)


def test_a_vocabulary_that_does_not_fit_the_text():
    texts = ["a few words", "and a few more"]
    with pytest.raises(DataError, match="--vocab_size 5000 is too high for so little text: take [0-9]+ or less"):
        train_tokenizer(texts, 5000)
    with pytest.raises(DataError, match="--vocab_size 100 is too small: these texts need at least [0-9]+") as error:
        train_tokenizer(texts, 100)
    smallest = int(str(error.value).split("at least ")[1].rstrip("."))
    assert train_tokenizer(texts, smallest)
    with pytest.raises(DataError, match=f"--vocab_size {smallest - 1} is too small"):
        train_tokenizer(texts, smallest - 1)


def test_a_directory_without_a_tokenizer(tmp_path):
    with pytest.raises(DataError, match="looked for sentencepiece.bpe.model, tokenizer.model, "):
        load_encoder(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="tokenizer.model is not a sentencepiece model"):
        load_encoder(tmp_path)


def test_another_tokenizer_is_left_alone_and_the_same_may_be_written_again(command, tmp_path, monkeypatch):
    def train(vocab_size: int):
        return command("tokenizer", "--input", "texts.txt", "--output", "tok", "--vocab_size", vocab_size)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("one two three four five six seven eight nine ten\n" * 20)
    assert [train(280).returncode, train(280).returncode] == [0, 0]
    before = (tmp_path / "tok" / MODEL_NAME).read_bytes()
    refused = train(282)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "error: tok has another tokenizer, sentencepiece.bpe.model, which " in refused.stderr
    assert "Name another --output, or remove tok first." in refused.stderr
    assert (tmp_path / "tok" / MODEL_NAME).read_bytes() == before
