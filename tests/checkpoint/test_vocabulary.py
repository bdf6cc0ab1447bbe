"""The vocabulary of a fresh model is its tokenizer's; every other model keeps its own."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.checkpoint.manifest import MANIFEST, Manifest
from launch.checkpoint.model_identity import run_config
from tests.checkpoint.test_manifest import BEFORE_DIGESTS


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Of 300 ids."""
    directory = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(directory, train_tokenizer(["some words, and some more words than those"] * 9, 300))
    return directory


def taken(directory, tokenizer, tensor_parallel_degree=-1, continue_training=False, **config) -> int:
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 4096} | config))
    flags = SimpleNamespace(
        model_name_or_path=str(directory),
        continue_training=continue_training,
        tokenizer_name_or_path=tokenizer and str(tokenizer),
        tensor_parallel_degree=tensor_parallel_degree,
        do_train=True,
        overwrite_output_dir=False,
        resume_from_checkpoint="auto",
        output_dir=str(directory),
    )
    return run_config(flags)["vocab_size"]


def test_a_fresh_model_takes_the_tokenizers_size_in_eights_and_others_keep_theirs(tmp_path, tokenizer):
    assert taken(tmp_path, tokenizer) == 304
    assert taken(tmp_path, tokenizer, vocab_size=256) == 304
    assert taken(tmp_path, tokenizer, tensor_parallel_degree=4) == 304
    assert taken(tmp_path, tokenizer, tensor_parallel_degree=3) == 312
    assert taken(tmp_path, tokenizer, vocab_size=300) == 300
    assert taken(tmp_path, tokenizer, continue_training=True) == 4096
    assert taken(tmp_path, None) == taken(tmp_path, "a-name-of-the-hub") == 4096
    assert taken(tmp_path, tokenizer, pad_token_id=304) == 4096  # the model would have no row for it


def checkpoint(output: Path, model: dict) -> None:
    path = output / "checkpoint-5"
    path.mkdir()
    manifest = Manifest(files={}, global_step=5, consumed_samples=5, consumed_tokens=5,
                        topology={"processes": 1}, model=model)  # fmt: skip
    (path / MANIFEST).write_text(manifest.to_json())


def test_a_run_that_goes_on_keeps_its_vocabulary_in_every_layout(tmp_path, tokenizer):
    """Of one process 304 ids, which 3 does not divide; a new run on 3 has 312."""
    checkpoint(tmp_path, {"config": {"vocab_size": 304}})
    assert taken(tmp_path, tokenizer, tensor_parallel_degree=3) == 304
    assert taken(tmp_path, tokenizer, vocab_size=304, tensor_parallel_degree=3) == 304
    (tmp_path / "checkpoint-5" / MANIFEST).unlink()
    assert taken(tmp_path, tokenizer, tensor_parallel_degree=3) == 312


@pytest.mark.parametrize("format", [1, 2])
def test_a_run_of_before_keeps_the_vocabulary_of_its_configuration(tmp_path, tokenizer, format):
    """Its checkpoints do not state the model."""
    if format == 1:
        shutil.copytree(BEFORE_DIGESTS, tmp_path / "checkpoint-5")
    else:
        checkpoint(tmp_path, {})
    assert taken(tmp_path, tokenizer) == 4096
