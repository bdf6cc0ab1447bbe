"""AutoTokenizer and the tokenizers of GLM."""

import json

import pytest

LOADED = "tests.upstream.glm_tokenizers_ranks:loaded"


@pytest.fixture
def directory(tmp_path) -> str:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GLMBertTokenizer"}))
    return str(tmp_path)


def test_finds_that_of_glm_515m(ranks, directory):
    assert ranks(1, LOADED, directory, True) == ["GLMBertTokenizer"]


def test_upstream_does_not(ranks, directory):
    with pytest.raises(AssertionError, match="Tokenizer class GLMBertTokenizer does not exist"):
        ranks(1, LOADED, directory, False)
