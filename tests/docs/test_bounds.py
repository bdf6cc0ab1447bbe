"""Bounds and limits in sentences of the English pages are those that the tests, the planner and the watches use."""

import pytest

from docs.tools.pages import ROOT, read
from launch.config.flag_values import load_schema
from launch.plan.hardware import GIB
from launch.plan.memory_model import CUDA_CONTEXT, NCCL_COMMUNICATOR, WORKSPACE
from launch.watch import CLOSED_FORM_TOLERANCE, COLLAPSE_STEPS, FIRST_STEPS, USUAL_LOSSES
from tests.distributed import parity, test_two_nodes
from tests.golden import curves
from tests.plan import test_accuracy, test_published
from tests.weights import test_export_against_transformers

FLAGS = {name: flag["default"] for name, flag in load_schema("launch/run_pretrain.py").items()}


def power(bound: float) -> str:
    """2e-6"""
    return f"{bound:.0e}".replace("e-0", "e-")


def per_cent(share: float) -> str:
    return f"{100 * share:g} %"


LOSS, GRAD_NORM, UPDATE = map(power, (parity.LOSS_TOLERANCE, parity.GRAD_NORM_TOLERANCE, parity.UPDATE_TOLERANCE))
SENTENCES = {
    "README": [
        f"on another number of cards within {LOSS}",
        f"the same logits in transformers ({power(test_export_against_transformers.TOLERANCE)})",
    ],
    "rehearsal": [f"the bounds are {LOSS} for losses, {GRAD_NORM} for gradient norms, {UPDATE} of its change"],
    "layouts": [
        f"| bound | | {parity.LOSS_TOLERANCE:.0e} | {parity.GRAD_NORM_TOLERANCE:.0e} | {parity.UPDATE_TOLERANCE:.0e} |",
        f"A rehearsal must stay within {power(curves.TOLERANCE)} of it",
    ],
    "resume": [f"are within {LOSS} of one process that was never interrupted"],
    "custom-ops": [f"the losses of one without within {LOSS}"],
    "multi-node": [f"two processes on one node within {power(test_two_nodes.TOLERANCE)}"],
    "plan": [
        f"the tests hold each within {per_cent(test_published.EACH)} and the median within "
        f"{per_cent(test_published.MEDIAN)}",
        f"the peak of a step must be within {per_cent(test_accuracy.BOUND)}",
        f"{WORKSPACE / GIB:g} GiB on a card: kernels' own buffers",
        f"{CUDA_CONTEXT / GIB:g} GiB, and {NCCL_COMMUNICATOR / GIB:g} GiB for each group of ranks",
    ],
    "export": [f"transformers: logits within {power(test_export_against_transformers.TOLERANCE)}"],
    "watches": [
        f"random weights: more than {per_cent(CLOSED_FORM_TOLERANCE)} from ln V + h sigma^2/2",
        f"below {per_cent(FLAGS['loss_collapse'])} of the first loss (at least of 1 nat)",
        f"within {COLLAPSE_STEPS} steps and the first epoch",
        f"more than {FLAGS['loss_spike']:g} nats above the median of the last {USUAL_LOSSES} logged losses",
        f"for {FLAGS['hang_factor']:g} times the median step, but at least {FLAGS['hang_seconds']:g} s "
        f"({FIRST_STEPS * FLAGS['hang_seconds']:g} s until three steps are known)",
    ],
}


@pytest.mark.parametrize("page", SENTENCES)
def test_sentences_tell_the_bounds_in_force(page):
    text = " ".join(read(ROOT / "README.md" if page == "README" else ROOT / "docs" / f"{page}.md").split())
    assert [sentence for sentence in SENTENCES[page] if sentence not in text] == []
