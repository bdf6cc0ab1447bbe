"""A saved adapter is read back: it holds what was trained, and something was; else the run ends with the reason."""

import re

import pytest

from tests.distributed.cells import FULL, LORA, PREFIX
from tests.distributed.layouts import PP2, SINGLE, STAGE3, TP2
from tests.runs import as_words

FINETUNE = "tests.training.read_back_ranks:finetune_with"
LINE = re.compile(
    r"adapter read back from \S+: (\d+) tensors as trained, (\d+) of them not as at the beginning; largest difference "
    r"of the (loss|logits) of (\d+) training samples (\S+)"
)
long = pytest.mark.long


@pytest.mark.parametrize(
    ("flags", "layout", "expected"),
    [
        (LORA, SINGLE, ("28", "28", "logits", "2", "0")),
        (PREFIX, SINGLE, ("1", "1", "logits", "2", "0")),
        pytest.param(LORA, TP2, ("28", "28", "logits", "2", "0"), marks=long),
        pytest.param(PREFIX, TP2, ("1", "1", "logits", "2", "0"), marks=long),
        pytest.param(LORA, STAGE3, ("28", "28", "logits", "2", "0"), marks=long),
        pytest.param(LORA, PP2, ("28", "28", "loss", "8", "0"), marks=long),
    ],
)
def test_what_was_compared_is_told(runs, flags, layout, expected):
    assert LINE.search(runs(FULL, layout=layout, **flags).stdout).groups() == expected


@pytest.mark.parametrize(
    ("fault", "message", "flags"),
    [
        ("bytes", "the adapter does not read back as it was trained: other numbers in llama.layers.", {}),
        pytest.param("scaling", "lora_alpha is 3, trained was 8", {}, marks=long),
        pytest.param("logits", "the adapter read back gives other logits, by up to", {}, marks=long),
        pytest.param("updates", "the adapter is as it was before training: no step has updated it.", {}, marks=long),
        pytest.param("bytes", "other numbers in llama.layers.", {"tensor_parallel_degree": 2}, marks=long),
        pytest.param("bytes", "other numbers in llama.layers.", {"eval_steps": 1}, marks=long),
    ],
)
def test_a_fault_ends_every_rank_with_its_reason(ranks, runs, tmp_path, fault, message, flags):
    """And the best adapter before it stays."""
    words = as_words(runs.words(FULL, output_dir=tmp_path / "out", max_steps=2, **LORA, **flags))
    for one in ranks(flags.get("tensor_parallel_degree", 1), FINETUNE, fault, words):
        assert one["exit_code"] == 2 and message in one["stderr"]
    assert not (tmp_path / "out" / "best").exists()
