"""Lines and numbers of a run's log."""

import json

import pytest

from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.reporting.throughput import Throughput, TimedLoader, TrainingClock


def test_throughput_divides_by_the_arithmetic_of_the_model():
    shape = ModelShape.from_config(load_config("llama-7b"))
    speed = Throughput(shape, sequence_length=2048, peak_flops=8 * 312e12).measure(163840, 10, 5.0)
    assert speed["tokens_per_second"] == 32768
    assert speed["step_seconds"] == 0.5
    assert speed["mfu"] == pytest.approx(32768 * 6 * shape.matmul_parameters / (8 * 312e12), rel=1e-12)
    attention = 12 * 32 * 4096 * 2048
    assert speed["mfu_with_attention"] - speed["mfu"] == pytest.approx(32768 * attention / (8 * 312e12), rel=1e-9)


def test_the_clock_leaves_out_what_is_paused(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("launch.reporting.throughput.time.monotonic", lambda: now[0])
    clock = TrainingClock()
    now[0] += 4
    with clock.paused():
        now[0] += 30
    now[0] += 1
    assert clock.lap() == 5
    now[0] += 2
    assert clock.lap() == 2


def test_a_record_of_floats_survives_json_with_all_its_digits():
    loss = 5.5585527420043945
    assert json.loads(json.dumps({"loss": loss}))["loss"] == loss


def test_waiting_for_data_is_counted_apart(monkeypatch):
    now = 0.0
    monkeypatch.setattr("launch.reporting.throughput.time.monotonic", lambda: now)

    def slow_loader():
        nonlocal now
        for batch in range(3):
            now += 2.0  # until the batch is there
            yield batch

    clock = TrainingClock()
    for _ in TimedLoader(slow_loader(), clock):
        now += 8.0  # the step
    assert (clock.lap(), clock.data_seconds) == (30.0, 6.0)
    assert (clock.lap(), clock.data_seconds) == (0.0, 0.0)
