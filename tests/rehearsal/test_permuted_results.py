"""Layouts with views, and with element-wise results laid out as Paddle 3.3's strided kernels do on cards."""

from pathlib import Path

import numpy as np
import pytest

from tests.distributed.layouts import PP2, STAGE3, TP2, TP2_SP
from tests.distributed.parity import LOSS_TOLERANCE

INSTALL = "tests.rehearsal.permuted_results_ranks:install"
IN_CHATGLM2 = "tests.rehearsal.permuted_results_ranks:pretrain_chatglm2"


@pytest.mark.nightly
@pytest.mark.parametrize("layout", [PP2, TP2, TP2_SP, STAGE3], ids=lambda layout: layout.name)
def test_losses_are_those_of_contiguous_results(runs, layout):
    plain, permuted = runs("pretraining", layout=layout), runs("pretraining", layout=layout, observers=[INSTALL])
    assert all(facts["permuted"] for facts in permuted.facts)
    np.testing.assert_allclose(permuted.column("loss"), plain.column("loss"), rtol=0, atol=LOSS_TOLERANCE)


@pytest.mark.nightly
def test_chatglm2_in_a_pipeline_needs_the_kernels_switched_off(ranks, tmp_path):
    """Its hidden states are [tokens, samples, hidden]: the first stage sends what is not in one piece."""
    material, *outputs = (str(tmp_path / name) for name in ("material", "plain", "permuted"))
    Path(material).mkdir()
    ranks(1, "tests.families.pretraining_ranks:make_materials", material, ["chatglm_v2"])
    ranks(2, IN_CHATGLM2, material, outputs[0], False)
    with pytest.raises(AssertionError, match="does not lie in one piece, as a collective needs it"):
        ranks(2, IN_CHATGLM2, material, outputs[1], True)
