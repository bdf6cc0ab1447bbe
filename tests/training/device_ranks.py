"""The device as training asks Paddle about it, on simulated cards; for test_device.py."""

import os
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import paddle

from launch.training import device, model

CAPABILITIES = {0: (8, 0), 1: (7, 0)}
NAMES = {0: "NVIDIA A100-SXM4-80GB", 1: "Tesla V100-SXM2-16GB"}
PEAKS = {0: 800, 1: 700}


def _environment() -> SimpleNamespace:
    """As Paddle's GPU build reads it."""
    return SimpleNamespace(device_id=int(os.environ["FLAGS_selected_gpus"]))  # noqa: SIM112


@contextmanager
def _cards(names: dict[int, str] = NAMES, used: int = 0):
    """Two cards for Paddle, of which one is used. In this thread CUDA's current one is card 0."""
    events = []

    def matmul(a, b):
        events.append(f"product of {a} and {b}")

    with ExitStack() as stack:
        for module, function, instead in (
            (paddle, "is_compiled_with_cuda", lambda: True),
            (paddle.device.cuda, "device_count", lambda: 2),
            (paddle.device.cuda, "get_device_capability", lambda number=0: CAPABILITIES[number]),
            (paddle.device.cuda, "get_device_name", lambda number=0: names[number]),
            (paddle.device.cuda, "max_memory_allocated", lambda number=0: PEAKS[number]),
            (paddle, "get_device", lambda: f"gpu:{used}"),
            (paddle, "ones", lambda shape, dtype: f"{shape[0]} x {shape[1]} {dtype}"),
            (paddle, "matmul", matmul),
            (paddle.device, "synchronize", lambda: events.append("wait")),
            (paddle.distributed, "ParallelEnv", _environment),
        ):
            stack.enter_context(patch.object(module, function, instead))
        yield events


def capabilities() -> dict[str, list | None]:
    """By --device, before set_device."""
    with _cards():
        return {name: device.compute_capability(name) for name in ("gpu", "gpu:0", "gpu:1", "cpu")}


def of_the_used_card() -> list:
    """Card 1's capability, name and peak memory."""
    with _cards(used=1):
        return [device.compute_capability(), device.card_name(), device.peak_memory_bytes()]


def peak(name: str, dtype: str) -> dict:
    with _cards({0: name}) as events, patch.object(device.time, "perf_counter", iter([1.0, 1.5]).__next__):
        found = device.device_peak(dtype)
    return {"flops": found.flops, "note": found.note, "events": events}


def cpu_peak(seconds: list[float]) -> float:
    """Where the products take so long, one after the other."""
    clock = iter([moment for each in seconds for moment in (0.0, each)])
    with patch.object(device.time, "perf_counter", clock.__next__):
        return device.device_peak("float32").flops


def matmul_dtypes() -> list[str]:
    """Of O1 and O2 in bfloat16 on a card, of O1 on a CPU, of float32."""
    return [
        model.matmul_dtype(SimpleNamespace(device=name, bf16=bf16, fp16=False, fp16_opt_level=level))
        for name, bf16, level in (("gpu", True, "O1"), ("gpu", True, "O2"), ("cpu", True, "O1"), ("gpu", False, "O1"))
    ]
