"""A training with the fused RMSNorm gives the numbers of one without, in every kind of layout."""

import os

import numpy as np
import pytest

from tests.cpu import test_kernels as cpu_kernels
from tests.distributed import parity
from tests.distributed.cells import PRETRAINING
from tests.distributed.layouts import PP2, SINGLE, STAGE2, STAGE3, TP2, TP2_SP, Layout
from tests.golden.curves import Curve, read_golden
from tests.recipes.rehearsing import rehearse_well
from tests.runs import Runs, load_weights

pytestmark = pytest.mark.nightly  # the operator is built first

FUSED, PLAIN = {"use_fused_rms_norm": "required"}, {"use_fused_rms_norm": "off"}
LAYOUTS = [SINGLE, TP2, TP2_SP, PP2, Layout(stage=1, sharding=2), STAGE2, STAGE3]


@pytest.fixture(scope="module")
def runs(fused_ranks) -> Runs:
    return Runs(fused_ranks)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_numbers_of_one_process_without_it(runs, layout):
    plain, fused = runs(PRETRAINING, **PLAIN), runs(PRETRAINING, layout=layout, **FUSED)
    assert np.abs(fused.column("loss") - plain.column("loss")).max() <= parity.LOSS_TOLERANCE
    assert np.abs(fused.column("grad_norm") / plain.column("grad_norm") - 1).max() <= parity.GRAD_NORM_TOLERANCE


@pytest.mark.parametrize("layout", [TP2, TP2_SP], ids=lambda layout: layout.name)
def test_the_norms_own_weights_are_updated_alike(runs, layout):
    """After one step of plain SGD. Under sequence parallel each rank sees part of the rows: gradients are summed."""
    initial, expected = load_weights(runs.material / "model"), runs(PRETRAINING, sgd=1, **PLAIN).weights
    found = runs(PRETRAINING, layout=layout, sgd=1, **FUSED).weights
    norms = [name for name in initial if "norm" in name]
    assert len(norms) == 5
    for name in norms:
        change = np.abs(expected[name] - initial[name]).max()
        assert np.abs(found[name] - expected[name]).max() <= parity.UPDATE_TOLERANCE * change, name


def test_beside_the_fast_operators_of_cpu_fast(fused_ranks):
    (found,) = fused_ranks(1, "tests.custom_ops.op_ranks:beside_cpu_fast")
    assert found["line"] == (
        "cpu_fast: LlamaForCausalLM: replaced 4 x rotary embedding, 4 x causal attention, 4 x SwiGLU (compiled)"
    )
    assert found["loss"] <= parity.LOSS_TOLERANCE and found["gradient"] <= 2e-5


def test_compiled_operators_train_as_stock_does(site, tmp_path):
    """With grouped heads, each grade of recomputation and frozen norms; two runs are equal to the bit."""
    speeds = ("off", "compiled", "compiled")
    stock, fast, again = cpu_kernels.arrays_of_runs(tmp_path, *speeds, PYTHONPATH=str(site))
    for layout in cpu_kernels.LAYOUTS:
        cpu_kernels.assert_equals_stock(stock, fast, layout)
    assert all((fast[name] == again[name]).all() for name in fast)
    for layout in ("full", "full_attn", "core_attn", "hooks"):
        cpu_kernels.assert_same_bits(fast, "heads", fast, layout)


def test_a_rehearsal_with_the_operator_gives_the_stored_curve(site, tmp_path, monkeypatch):
    """Of a recipe whose learning rate does not magnify the last digit of a float32."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep))
    rehearsed = rehearse_well("pretrain-llama7b", tmp_path)
    assert "fused RMSNorm: on" in rehearsed.done.stdout
    assert read_golden("pretrain-llama7b").differences(Curve.of_run(rehearsed.output)) == ""
