"""Planned bytes follow from what is said to be alive, not from when Python frees an object."""

import gc

import pytest

from launch.config.layout import Layout
from launch.families.named_configs import load_config
from launch.plan.job import Job
from launch.plan.step import Place, replay
from launch.tape.autograd import Memory
from launch.tape.operators import Operators

CONFIGS = ["llama-rehearsal", "chatglm-rehearsal", "chatglm2-rehearsal", "bloom-rehearsal", "opt-rehearsal"]
ONE, PIPELINE = Layout(1, 1, 1, 1, ""), Layout(1, 1, 1, 2, "")
JOBS = {
    **{name: Job(load_config(name), ONE, 2, 1, 64, eval_batch=4, on_gpu=False) for name in [*CONFIGS, "glm-rehearsal"]},
    "recompute": Job(load_config("llama-rehearsal"), ONE, 2, 1, 64, recompute="full"),
    "pipeline": Job(load_config("llama-rehearsal"), PIPELINE, 2, 4, 64, recompute="full"),
}


def collect_tensors(monkeypatch, keep) -> None:
    """Call keep(tensor) for each tensor that an operator makes."""
    new = Operators.new

    def make(self, shape, item):
        tensor = new(self, shape, item)
        keep(tensor)
        return tensor

    monkeypatch.setattr(Operators, "new", make)


@pytest.mark.parametrize("name", JOBS)
def test_another_reference_to_each_tensor_changes_no_number(monkeypatch, name):
    expected, tensors = replay(JOBS[name], Place()), []
    collect_tensors(monkeypatch, tensors.append)
    assert replay(JOBS[name], Place()) == expected
    assert len(tensors) > 100


def test_cycles_without_a_garbage_collector_change_no_number(monkeypatch):
    def put_into_a_cycle(tensor):
        cycle = [tensor]
        cycle.append(cycle)

    expected = replay(JOBS["llama-rehearsal"], Place())
    collect_tensors(monkeypatch, put_into_a_cycle)
    gc.disable()
    try:
        assert replay(JOBS["llama-rehearsal"], Place()) == expected
    finally:
        gc.enable()
        gc.collect()


def test_bytes_are_alive_until_they_are_last_named():
    memory = Memory(granule=256)
    memory.begin("forward")
    first = memory.take(256, "attention")
    memory.take(1, "MLP")  # for a moment; the allocator rounds it up
    memory.alive(first)
    memory.take(512, "norms")
    memory.begin("backward")
    memory.take(100, "MLP")
    assert memory.peaks() == {
        "forward": {"attention": 256, "MLP": 256},
        "backward": {"attention": 0, "MLP": 256, "norms": 0},
    }
    memory = Memory()
    for size in (1, 3, 2):  # a phase that returns keeps its higher peak
        memory.begin("forward")
        memory.take(size, "MLP")
        memory.begin("backward")
    assert memory.peaks()["forward"] == {"MLP": 3}
    memory = Memory()
    memory.begin("backward")
    gradient = memory.take(8, "MLP")
    memory.move(gradient, "gradients")  # and is counted there
    memory.take(1, "norms")
    memory.alive(gradient)
    assert memory.peaks() == {"backward": {"MLP": 0, "gradients": 8, "norms": 1}}
    with pytest.raises(RuntimeError), memory.of("attention"), memory.without_gradients():
        raise RuntimeError
    assert memory.part == "" and memory.recording, "an interrupted block leaves part and recording as they were"
