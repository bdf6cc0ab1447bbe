"""What the loss watch stops, and what it lets pass."""

import math
from dataclasses import replace

import pytest

from launch.errors import UserError
from launch.watch import Limits, LossWatch, Window, parse_window

RATE = 15.0  # of the first step, in a warm-up
USUAL = Limits(first_loss=None, collapse=0.01, spike=2.0)


def first_fault(losses, limits=USUAL, grad_norms=None, first_step=1, every=1, past=(), epoch=0.1):
    """(step, fault) of the first fault in a curve, None where there is none."""
    watch = LossWatch(limits, past)
    for index, loss in enumerate(losses):
        step = first_step + index * every
        norm = grad_norms[index] if grad_norms else 1.0
        fault = watch.fault(
            {"global_step": step, "epoch": epoch, "loss": loss, "grad_norm": norm, "learning_rate": step * RATE}
        )
        if fault:
            return step, fault
    return None


def test_a_usual_curve_passes():
    assert first_fault([11.2 * 0.98**step + 0.3 * (step % 3) for step in range(200)]) is None


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number(loss):
    step, fault = first_fault([2.0, 2.1, loss])
    assert (step, fault.found) == (3, f"the loss is {loss}")
    assert "--bf16 1" in fault.causes[0]


def test_a_gradient_norm_that_is_no_number_is_usual_only_while_a_loss_scale_is_found():
    step, fault = first_fault([2.0, 2.1], grad_norms=[1.0, math.inf])
    assert (step, fault.found) == (2, "the gradient norm is inf")
    scaled = Limits(first_loss=None, collapse=0.01, spike=2.0, overflows=True)
    assert first_fault([2.0, 2.1], scaled, grad_norms=[math.nan, math.inf]) is None


@pytest.mark.parametrize(("first", "bound"), [(2.0, 0.02), (11.2, 0.112), (0.5, 0.01)])
def test_a_collapse_is_a_share_of_the_first_loss_at_least_of_one_nat(first, bound):
    step, fault = first_fault([first, first, 0.99 * bound])
    assert step == 3 and fault.causes[0].startswith("flash attention") and f"below {bound:.4f}" in fault.found
    assert first_fault([first, first, 1.01 * bound]) is None
    assert first_fault([first, first, 0.0], Limits(None, collapse=0, spike=2.0)) is None


def test_a_collapse_at_the_first_step_of_a_process_is_seen():
    assert first_fault([0.004], first_step=700)[0] == 700


def test_what_takes_longer_than_a_hundred_steps_was_learnt():
    late = [2.0] + [0.001] * 2
    assert first_fault(late, first_step=500, every=101) is None
    assert first_fault(late, first_step=500, every=100)[0] == 600


def test_what_is_read_again_is_learnt_by_heart():
    assert first_fault([2.0, 0.001], epoch=1.1) is None
    assert first_fault([2.0, 0.001], epoch=1.0)[0] == 2


@pytest.mark.parametrize(("loss", "cause"), [(10.6, "the model was trained"), (11.8, "tokens of another tokenizer")])
def test_the_first_loss_of_random_weights_is_within_five_per_cent(loss, cause):
    window = parse_window("auto", 11.19)
    assert window.low == pytest.approx(0.95 * 11.19) and window.high == pytest.approx(1.05 * 11.19)
    step, fault = first_fault([loss], Limits(window, 0.01, 2.0))
    assert step == 1 and fault.causes[0].startswith(cause)
    assert f"the first loss is {loss:.3f}, expected 10.63 to 11.75 (random weights" in fault.found
    assert first_fault([11.19, 9.0], Limits(window, 0.01, 2.0)) is None


def test_a_resumed_run_has_no_first_loss():
    assert first_fault([9.0], Limits(parse_window("auto", 11.19), 0.01, 2.0), first_step=21) is None


def test_windows():
    assert parse_window("1.8-2.5", None) == Window(1.8, 2.5, "--loss_first")
    assert parse_window("1.8-2.5", 11.19).low > 10  # the window is for trained weights
    assert parse_window("auto", None) is None
    assert parse_window("off", 11.19) is None
    for wrong in ("2", "2.5-1.8", "a-b", "", "-1-2"):
        with pytest.raises(UserError, match="--loss_first: found"):
            parse_window(wrong, None)


def test_a_spike_is_far_above_the_median_of_what_came_before():
    step, fault = first_fault([2.0, 2.2, 2.1, 9.0, 2.0, 4.2])
    assert step == 6 and fault.found.startswith("the loss jumped to 4.200 from 2.100, the median of the last 5")
    assert first_fault([2.0, 2.2, 2.1, 9.0]) is None  # too little is known of what is usual
    assert first_fault([2.0, 2.2, 2.1, 2.0, 2.0, 4.0]) is None
    assert first_fault([2.0] * 6 + [9.0], Limits(None, 0.01, spike=0)) is None


def test_a_resumed_run_is_compared_with_what_was_before():
    assert first_fault([4.5], first_step=6, past=[2.0] * 5)[0] == 6


def test_gradients_that_stay_zero():
    step, fault = first_fault([2.0] * 5, grad_norms=[0.0, 1.0, 0.0, 0.0, 0.0])
    assert step == 5 and fault.found.startswith("the gradient is 0 in 3 records")
    assert first_fault([2.0] * 4, grad_norms=[0.0, 0.0, 1.0, 0.0]) is None


@pytest.mark.parametrize(
    ("losses", "grad_norms"),
    [
        ([6.0, 28.0, 10.8, 10.8, 10.8, 10.8], [1.0, 21_610.0, 1.0, 0.0, 0.0, 0.0]),
        ([6.0, 7.5, 7.0, 6.9, 6.8, math.nan], None),
        ([6.0] * 5 + [9.0], None),
    ],
)
def test_after_a_climb_of_the_loss_the_likeliest_cause_is_the_learning_rate(losses, grad_norms):
    step, fault = first_fault(losses, grad_norms=grad_norms)
    assert step == 6 and len(fault.causes) == len({*fault.causes})
    assert fault.causes[0].startswith("the learning rate is too high: found 90, try 0.0001;")
    assert sum("learning rate" in cause for cause in fault.causes) == 1


def test_no_cause_is_a_kernel_of_a_card_where_there_is_none():
    here = replace(USUAL, on_cpu=True)
    for losses in ([2.0, 2.0, 0.001], [2.0, math.nan]):
        _, fault = first_fault(losses)
        _, on_cpu = first_fault(losses, here)
        assert any("flash_attention" in cause for cause in fault.causes)
        assert on_cpu.found == fault.found and len(on_cpu.causes) == len(fault.causes) - 1
        assert not any("flash" in cause for cause in on_cpu.causes)
