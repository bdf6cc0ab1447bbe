"""A LoRA on LLM.int8, with the flags of recipes/chatglm-6b/int8-lora-1gpu.sh: cut off and resumed, to the last bit."""

import pytest

from tests.distributed.layouts import SINGLE
from tests.distributed.resuming import LORA, Case, resume

METHOD = (*LORA, "--weight_quantize_algo", "llm.int8", "--fp32_norms_and_head", "1", "--pad_to_multiple_of", "8")


@pytest.mark.nightly
def test_resumed_equals_uninterrupted(ranks, tmp_path):
    """Rows of weights that outliers need are read again: which were kept before changes nothing."""
    ranks(1, "tests.training.finetune_material:make_material", str(tmp_path / "material"))
    outcome = resume(ranks, tmp_path / "material", tmp_path, Case(SINGLE, METHOD, at=3))
    assert outcome.exact, outcome
