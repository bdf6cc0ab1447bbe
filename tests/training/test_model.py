"""Where the weights of a name come from."""

import shutil

from data_tools.tokenizer import save_tokenizer, train_tokenizer
from tests.checkpoint.test_manifest import BEFORE_DIGESTS

DOWNLOAD = "tests.training.model_ranks:download"


def test_rank_zero_downloads_before_the_others_look(ranks, tmp_path):
    first, second = ranks(2, DOWNLOAD, str(tmp_path), False)
    assert first["found"] == second["found"] == str(tmp_path)
    assert first["there_before"] == [False] and second["there_before"] == [True]


def test_a_download_that_fails_is_told_on_every_rank(ranks, tmp_path):
    first, second = ranks(2, DOWNLOAD, str(tmp_path), True)
    assert first["found"] == second["found"]
    assert first["found"].startswith("--model_name_or_path: 'facebook/llama-7b' cannot be loaded: Connection refused.")
    assert second["there_before"] == []  # it did not try


def test_a_fresh_model_keeps_the_tokenizer_of_its_directory(ranks, runs):
    assert ranks(1, "tests.training.model_ranks:tokenizers", str(runs.material)) == [[384, None, None]]


def test_a_run_of_before_goes_on_with_the_vocabulary_of_its_configuration(ranks, tmp_path):
    save_tokenizer(tmp_path, train_tokenizer(["some words, and some more words than those"] * 9, 300))
    checkpoint = shutil.copytree(BEFORE_DIGESTS, tmp_path / "checkpoint-5")
    [found] = ranks(1, "tests.training.model_ranks:fresh_vocabulary", str(tmp_path), str(checkpoint))
    assert found == {"vocab_size": 1024, "lines": []}


def test_a_fresh_model_has_its_tokenizers_vocabulary_and_says_so(ranks, tmp_path):
    save_tokenizer(tmp_path, train_tokenizer(["some words, and some more words than those"] * 9, 300))
    assert ranks(1, "tests.training.model_ranks:fresh_vocabulary", str(tmp_path)) == [
        {
            "vocab_size": 304,
            "lines": [f"vocabulary: 304 ids, those of {tmp_path}, not the configuration's 1,024"],
        }
    ]
