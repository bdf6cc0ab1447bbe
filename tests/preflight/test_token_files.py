"""Ids within the vocabulary, samples for the steps."""

import numpy as np
import pytest

from data_tools.formats.tokens.indexed import IndexedDataset, IndexedWriter
from data_tools.formats.tokens.summary import check_vocabulary, write_summary
from launch.config.flag_values import parse_flags
from launch.config.run_config import RunConfig
from launch.preflight.token_files import BLOCK_TOKENS, SAMPLED_BLOCKS, check_data_fit, largest_of_sample
from tests.corpora import write_corpus


@pytest.fixture
def corpus(tmp_path):
    """40 documents of 100 tokens, ids up to 99."""
    write_corpus(tmp_path / "corpus", documents=40, tokens=100)
    return tmp_path / "corpus"


FLAGS = "--model_name_or_path llama-rehearsal --split 8,2,0 --max_seq_length 32 --per_device_train_batch_size 4"


def told(*words, processes: int = 1, **changes) -> dict[str, tuple[bool, str]]:
    """What is found about "ids" and "samples" of these words of --input_dir. The model has 1024 ids."""
    stated = parse_flags(f"{FLAGS} --max_steps 10 --do_train 1 --do_eval 1".split())
    stated |= {name: [str(value)] for name, value in changes.items()} | {"input_dir": [str(word) for word in words]}
    findings = check_data_fit(RunConfig("launch/run_pretrain.py", stated, processes=processes))
    return {one.subject: (one.ok, one.found) for one in findings}


def test_data_that_fit(corpus):
    # 32 documents of 100 tokens train: (3200 - 1) // 32 samples
    sampled = "(1 of 1 corpora sampled: training reads every id when it starts)"
    assert told(corpus) == {
        "ids": (True, f"up to 99 of the model's 1,024 {sampled}"),
        "samples": (True, "40 needed for 10 steps of 4, 99 there"),
    }
    found = told(corpus, processes=8, gradient_accumulation_steps=3, tensor_parallel_degree=2)["samples"]
    assert found == (True, "480 needed for 10 steps of 48, 99 there: each is read 4.8 times")
    assert told("nowhere") == {}, "another check reports it"
    assert told(corpus, model_name_or_path="nowhere") == {}
    assert told(corpus, processes=3, tensor_parallel_degree=2) == {}


def test_a_blend_ends_where_its_first_corpus_is_used_up(corpus, tmp_path):
    write_corpus(tmp_path / "other", documents=80, tokens=100)  # 64 train: 199 samples
    # of 99 at three quarters: 132 in all; of 199 at a quarter: 796
    assert told(3, corpus, 1, tmp_path / "other")["samples"][1] == "40 needed for 10 steps of 4, 132 there"
    assert told(tmp_path)["samples"][1] == "40 needed for 10 steps of 4, 298 there"


@pytest.mark.parametrize(("split", "named"), [("8,0,0", "valid"), ("0,10,0", "train"), ("1000,1,0", "valid")])
def test_a_split_without_samples_is_a_fault(corpus, split, named):
    ok, found = told(corpus, split=split)["samples"]
    assert not ok
    assert found == (
        f"none in the {named} split (--split {split}): {corpus} gives it 0 of 40 documents, 0 tokens; a sample needs 33"
    )
    assert named == "train" or told(corpus, split=split, do_eval=0)["samples"][0]
    ok, found = told(corpus, max_seq_length=800)["samples"]
    assert not ok and "gives it 8 of 40 documents, 800 tokens; a sample needs 801" in found
    ok, found = told(corpus, split="a,b")["samples"]
    assert not ok and "split 'a,b': expected one to three shares" in found


def test_an_id_beyond_the_vocabulary_is_a_fault(tmp_path):
    write_corpus(tmp_path / "large", documents=40, tokens=100, largest_id=1024)
    fault = (False, f"{tmp_path}/large.bin: token id 1024, the model has the ids 0 to 1023")
    assert told(tmp_path / "large")["ids"] == fault
    write_summary(tmp_path / "large", {})
    assert told(tmp_path / "large")["ids"] == fault


@pytest.fixture
def hidden(tmp_path):
    """A corpus whose only large id, 5000, is where no sample looks."""
    tokens = np.zeros(2 * SAMPLED_BLOCKS * BLOCK_TOKENS, np.int64)
    tokens[int(1.5 * BLOCK_TOKENS)] = 5000
    with IndexedWriter(tmp_path / "hidden", 6000) as writer:
        for document in np.split(tokens, 4):
            writer.add_document(document)
    return tmp_path / "hidden"


def test_what_a_sample_cannot_see_the_summary_tells_and_training_reads(hidden):
    corpus = IndexedDataset(hidden)
    assert largest_of_sample(corpus) == 0
    assert told(hidden)["ids"][0]
    with pytest.raises(ValueError, match="token id 5000 in document 0"):
        check_vocabulary(corpus, 1024)
    write_summary(hidden, {})
    assert told(hidden)["ids"] == (False, f"{hidden}.bin: token id 5000, the model has the ids 0 to 1023")
    with pytest.raises(ValueError, match="token id 5000 in document 0"):
        check_vocabulary(corpus, 1024)


def test_a_summary_is_believed_without_reading_the_tokens(corpus, monkeypatch):
    write_summary(corpus, {})
    monkeypatch.setattr(IndexedDataset, "blocks", lambda self: pytest.fail("every token was read"))
    check_vocabulary(IndexedDataset(corpus), 100)
    assert told(corpus)["ids"] == (True, "up to 99 of the model's 1,024")
    write_corpus(corpus, documents=40, tokens=100, largest_id=1500)  # the summary is of other content now
    monkeypatch.undo()
    with pytest.raises(ValueError, match="token id 1024"):
        check_vocabulary(IndexedDataset(corpus), 1024)
    assert not told(corpus)["ids"][0]
