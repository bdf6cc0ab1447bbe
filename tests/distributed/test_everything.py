"""What saves memory and time, all of it together: the numbers of one process that has none of it."""

import pytest

from tests.distributed import test_finetune_parity, test_parity
from tests.distributed.finetuning import LoraRuns
from tests.distributed.layouts import STAGE2, STAGE3, TP2, TP2_PP2_SP, everything_on
from tests.distributed.parity import Runs

pytestmark = pytest.mark.long

WHOLE = ("--loss_chunk_tokens", "off")  # of the one process


@pytest.fixture(scope="module")
def pretraining(ranks, tmp_path_factory) -> Runs:
    return Runs(ranks, tmp_path_factory.mktemp("everything"), *WHOLE)


@pytest.fixture(scope="module")
def packed_lora(ranks, tmp_path_factory) -> LoraRuns:
    root = tmp_path_factory.mktemp("everything")
    ranks(1, "tests.training.finetune_material:make_material", str(root), 4, 0.02)
    return LoraRuns(ranks, root, *test_finetune_parity.LORA, "--zero_padding", "1", *WHOLE)


@pytest.mark.parametrize("layout", [TP2, TP2_PP2_SP, STAGE2, STAGE3], ids=lambda layout: layout.name)
def test_pretraining(pretraining, layout):
    """The inputs of every layer have been recomputed from host memory; sums go beside products where there are any."""
    flags = everything_on(layout)
    test_parity.assert_equal_to_one_process(pretraining, layout, *flags)
    for facts in pretraining.adamw(layout, *flags).facts:
        once = test_parity.STEPS * layout.accumulation * len(facts["layers"])
        assert facts["calls"] == dict.fromkeys(test_parity.CALLED_TWICE["full"], 2 * once)
        assert bool(facts["overlapping"]) == (layout.tensor > 1)


@pytest.mark.parametrize("layout", [TP2, STAGE2], ids=lambda layout: layout.name)
def test_lora_on_packed_rows(packed_lora, layout):
    test_finetune_parity.assert_equal_to_one_process(packed_lora, layout, *everything_on(layout))
