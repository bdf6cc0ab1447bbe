"""Fine-tuning on packed rows, whose masks and positions go along, gives the single-process numbers in every layout."""

import pytest

from tests.distributed.finetuning import FinetuneRuns
from tests.distributed.layouts import PP2, STAGE2, TP2, TP2_SP
from tests.distributed.test_finetune_parity import assert_equal_to_one_process, layouts

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def packed(ranks, tmp_path_factory) -> FinetuneRuns:
    root = tmp_path_factory.mktemp("packed")
    ranks(1, "tests.training.finetune_material:make_material", str(root), 4, 0.02)
    return FinetuneRuns(ranks, root, "--zero_padding", "1")


@layouts(TP2, TP2_SP, PP2, STAGE2)
def test_packed_rows(packed, layout):
    assert_equal_to_one_process(packed, layout)
