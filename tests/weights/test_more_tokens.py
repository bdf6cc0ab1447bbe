"""Tokens that a model does not have: added to its files, trained as rows beside a LoRA, merged and exported."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file
from sentencepiece import SentencePieceTrainer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from data_tools.text.encoders import SentencePieceEncoder
from launch.adapters.lora_files import read_lora
from launch.commands.add_tokens import main
from launch.errors import UserError
from launch.weights.gguf_export import export_adapter_gguf
from launch.weights.merging import merged_tensors
from launch.weights.peft import export_adapter, import_adapter
from tests.weights.lora_material import llama, save_base, save_lora, write_lora

WORDS = ("llama.embed_tokens.weight", "lm_head.weight")


@pytest.mark.parametrize(("tokens", "vocabulary"), [(60, 64), (63, 72), (67, 72)])
def test_new_rows_are_the_mean_of_those_of_known_tokens(tmp_path, capsys, tokens, vocabulary):
    before = save_base(tmp_path / "base", llama())
    Tokenizer(WordLevel({f"w{number}": number for number in range(tokens)}, "w0")).save(
        str(tmp_path / "base" / "tokenizer.json")
    )
    main([str(tmp_path / "base"), str(tmp_path / "more"), "<call>", "</call>"])
    told = capsys.readouterr().out
    assert told.endswith(f"--lora 1 --trainable_token_indices {tokens} {tokens + 1}\n")
    after = load_file(tmp_path / "more" / "model.safetensors")
    assert json.loads((tmp_path / "more" / "config.json").read_text())["vocab_size"] == vocabulary
    assert Tokenizer.from_file(str(tmp_path / "more" / "tokenizer.json")).encode("</call>").ids == [tokens + 1]
    for name, tensor in before.items():
        new, old = (one if name == WORDS[0] else one.T for one in (after[name], tensor))
        if name in WORDS:
            known = old[:tokens]  # of 64
            assert np.array_equal(new[: len(known)], known) and len(new) == vocabulary
            mean = np.tile(known.mean(axis=0, dtype=np.float64), (vocabulary - len(known), 1))
            np.testing.assert_allclose(new[len(known) :], mean, rtol=1e-6, atol=1e-9)
        else:
            assert np.array_equal(new, old), name
    with pytest.raises(
        UserError, match=f"more: found the ids '</call>' {tokens + 1}, '<x>' .*, expected new ones from"
    ):
        main([str(tmp_path / "more"), str(tmp_path / "again"), "</call>", "<x>"])
    assert not (tmp_path / "again").exists()


def test_tokens_beside_a_sentencepiece_model(tmp_path):
    save_base(tmp_path / "base", llama())
    with (tmp_path / "base" / "sentencepiece.bpe.model").open("wb") as model:
        SentencePieceTrainer.train(
            sentence_iterator=iter(["abc"]), model_writer=model, vocab_size=7, model_type="char", minloglevel=2
        )
    main([str(tmp_path / "base"), str(tmp_path / "more"), "<call>", "</call>"])
    encoder = SentencePieceEncoder(tmp_path / "more" / "sentencepiece.bpe.model")
    assert encoder.encode_chat("<call>a</call>")[::3] == [7, 8]
    for model, tokens, found in (("base", ["b", "<x>"], r"'b' \d, '<x>' 8"), ("more", ["<call>"], "'<call>' 7")):
        with pytest.raises(UserError, match=f"{model}: found the ids {found}, expected new ones"):
            main([str(tmp_path / model), str(tmp_path / "again"), *tokens])


def test_a_tokenizer_that_takes_no_tokens(tmp_path):
    save_base(tmp_path / "base", llama())
    with pytest.raises(UserError, match="no tokenizer.json or SentencePiece model"):
        main([str(tmp_path / "base"), str(tmp_path / "more"), "<x>"])


def test_rows_are_merged_exported_and_imported_to_the_bit(tmp_path):
    before = save_base(tmp_path / "base", llama())
    tensors = save_lora(tmp_path / "lora", llama(), ("q_proj",), tokens=(9, 41, 3))
    rows = {f"{name.removesuffix('token_rows')}weight": one for name, one in tensors.items() if "token_rows" in name}
    merged = {
        one.name: np.concatenate(list(one.pieces()))
        for one in merged_tensors(tmp_path / "base", read_lora(tmp_path / "lora"))
    }
    for name in WORDS:
        found, expected = (one if name == WORDS[0] else one.T for one in (merged[name], before[name].copy()))
        expected[[9, 41, 3]] = rows[name]
        assert np.array_equal(found, expected), name
    export_adapter(tmp_path / "lora", tmp_path / "base", tmp_path / "peft")
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    assert config["trainable_token_indices"] == {"embed_tokens": [9, 41, 3], "lm_head": [9, 41, 3]}
    theirs = load_file(tmp_path / "peft" / "adapter_model.safetensors")
    for name, module in zip(WORDS, ("model.embed_tokens", "lm_head"), strict=True):
        assert np.array_equal(theirs[f"base_model.model.{module}.token_adapter.trainable_tokens_delta"], rows[name])
    assert import_adapter(tmp_path / "peft", tmp_path / "base", tmp_path / "back") == (len(tensors), False)
    back = read_lora(tmp_path / "back")
    assert back.token_ids == [9, 41, 3] and back.tensors.keys() == tensors.keys()
    assert all(np.array_equal(back.tensors[name].open(), one) for name, one in tensors.items())
    with pytest.raises(UserError, match="found rows of tokens, and llama.cpp has A and B alone"):
        export_adapter_gguf(tmp_path / "lora", tmp_path / "base", tmp_path / "gguf")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([9, 41], r"trainable_token_indices: found 2 ids and llama.embed_tokens.token_rows \[3, 64\]"),
        ([9, 9, 3], "allowed: a list of different ids"),
        ("9 41 3", "allowed: a list of different ids"),
        (None, "found 0 ids and"),
        ([9, 64, 3], "65 tokens of 64 numbers at least by the adapter"),
    ],
    ids=str,
)
def test_rows_that_do_not_fit(tmp_path, ids, message):
    save_base(tmp_path / "base", llama())
    write_lora(tmp_path / "lora", save_lora(tmp_path / "lora", llama(), tokens=(9, 41, 3)), trainable_token_indices=ids)
    with pytest.raises(UserError, match=message):
        merged_tensors(tmp_path / "base", read_lora(tmp_path / "lora"))
