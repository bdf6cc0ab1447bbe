"""Dynamic loss scaling: the rule that moves the scale, and runs in which a gradient of one rank is infinite."""

import random

import pytest

from launch.reporting.records import read_train_log
from tests.distributed.cells import PRETRAINING, SCALED, STAGE1
from tests.distributed.layouts import DP2, PP2, SINGLE, STAGE2, STAGE3, TP2
from tests.runs import as_words

CASES = "tests.training.loss_scale_ranks"
# A schedule that moves with every step; a scale that soon moves both ways.
FLAGS = SCALED | {"lr_scheduler_type": "linear", "max_steps": 8, "loss_scale_hysteresis": 2, "do_eval": 0}


def deepspeed(window: int, hysteresis: int, minimum: float, scale: float, overflows: list[bool]) -> list[float]:
    """DynamicLossScaler.update_scale of DeepSpeed 0.14 (runtime/fp16/loss_scaler.py), written down from it."""
    left, last_overflow, seen = hysteresis, -1, []
    for step, overflow in enumerate(overflows):
        if overflow:
            if hysteresis == 1 or left == 1:
                scale = max(scale / 2, minimum)
            else:
                left -= 1
            last_overflow = step
        elif (step - last_overflow) % window == 0:
            left = hysteresis
            scale *= 2
        seen.append(scale)
    return seen


def test_rule_is_deepspeeds(ranks):
    draw = random.Random(0)
    for rule in ([3, 1, 1.0], [3, 2, 1.0], [5, 3, 64.0], [1, 2, 0.5]):
        overflows = [draw.random() < 0.3 for _ in range(400)]
        found = ranks(1, f"{CASES}:scales", rule, 2.0**16, overflows)[0]
        assert found == deepspeed(*rule, 2.0**16, overflows)
        assert rule[2] <= min(found) < max(found)


def test_no_later_step_reads_the_scale_before_its_update(ranks):
    """It would wait for the device in the middle of the step."""
    assert ranks(1, f"{CASES}:reads", 3) == [[1, 2, 3]]


def column(output, key: str) -> list:
    return [record[key] for record in read_train_log(output) if "loss" in record]


@pytest.mark.parametrize(
    "layout",
    [
        SINGLE,
        pytest.param(PP2, marks=pytest.mark.long),
        *(pytest.param(one, marks=pytest.mark.nightly) for one in (DP2, STAGE1, STAGE2, STAGE3, TP2)),
    ],
    ids=lambda layout: layout.name,
)
def test_all_ranks_skip_and_recover_together(ranks, runs, tmp_path, layout):
    """Steps 3 to 5 overflow on the last rank alone. The scale doubles after two steps, bears one overflow, halves with
    the two that follow, and doubles again two steps later."""
    words = as_words(runs.words(PRETRAINING, layout, output_dir=tmp_path, **FLAGS))
    found = ranks(layout.processes, f"{CASES}:train", words, [3, 4, 5], layout.processes - 1)
    assert [rank["moved"] for rank in found] == [[1, 2, 6, 7, 8]] * layout.processes
    assert [rank["scaler"] for rank in found] == [[4096, 1, 0]] * layout.processes
    assert column(tmp_path, "global_step") == list(range(1, 9))
    assert column(tmp_path, "loss_scale") == [4096, 8192, 8192, 4096, 2048, 2048, 4096, 4096]
    assert column(tmp_path, "skipped_steps") == [0, 0, 1, 1, 1, 0, 0, 0]
    rates = [1e-3, 8.75e-4, 7.5e-4, 7.5e-4, 7.5e-4, 7.5e-4, 6.25e-4, 5e-4]
    assert column(tmp_path, "learning_rate") == pytest.approx(rates, rel=1e-12)
    told = "gradients overflow, update skipped; loss scale"
    assert found[0]["told"] == [
        f"step 3: {told} stays 8192",
        f"step 4: {told} 8192 -> 4096",
        f"step 5: {told} 4096 -> 2048",
    ]
    assert not any(rank["told"] for rank in found[1:])


def test_a_scale_changes_no_digit(runs):
    """Powers of two: losses and gradient norms are those without one."""
    scaled, plain = runs(PRETRAINING, **SCALED), runs(PRETRAINING)
    assert scaled.column("loss_scale").tolist() == [4096, 8192, 8192, 16384, 16384, 32768]
    for key in ("loss", "grad_norm", "learning_rate"):
        assert scaled.column(key).tolist() == plain.column(key).tolist()


def test_half_precision_weights_have_a_float32_copy(ranks):
    """Under O2, which keeps weights in half precision; moments are float32, too."""
    float32 = "paddle.float32"
    assert ranks(1, f"{CASES}:master_weights", "O2") == [{"moments": [float32], "copies": [float32], "equal": [True]}]
    assert ranks(1, f"{CASES}:master_weights", "O1")[0]["copies"] == []
