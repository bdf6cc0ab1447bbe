"""Benchmarks that no other test runs, at a size that says nothing of speed: they end well and show what they measure.
Those that need the fused RMSNorm: tests/custom_ops/test_benchmark.py."""

import subprocess
import sys

import pytest

from tests.store import ROOT


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("benchmark", "flags", "shown"),
    [
        (
            "attack",
            "--requests 40 --seed 1 --slower 10",
            ["fine    largest gap of the stream", "fine    the studio ends"],
        ),
        ("dialogues", "--chats 60 --rounds 1", ["apply_chat_template", "the same ids: 60 of 60 chats"]),
        ("checkpoint_stall", "--smoke", ["in the background", "at once", "paddlenlp's own"]),
        ("grpo", "--smoke --threads 1", ["both, sampled, tokens/s", "top_p 0.8", "equal to the bit"]),
        ("optimizers", "adafactor --steps 2", ["adafactor {'first': 8.29"]),
        ("parity", "dp2", ["bound", "dp2"]),
        ("plan_runs", "--rows", ["mpt-7b, 8 x H100", "speeds in the range"]),
        ("plan_speed", "", ["LLaMA-13B, TP2, stage 2 x 4", "PCIe 4 x16"]),
        ("rehearsal_collectives", "--smoke", ["shared memory", "gloo"]),
        ("restart", "--smoke", ["hashing the files of a checkpoint", "in the background"]),
        ("resuming", "dp2", ["pretraining", "equal"]),
        ("seeking", "--consumed 1000 --largest-read 1000", ["1,000"]),
        ("serving", "--smoke --rounds 1", ["transformers"]),
        ("startup", "--smoke", ["roll call", "4,096 ranks", "One rank of a tiny model"]),
        ("tokenizing_memory", "--megabytes 1", ["peak MB, all processes"]),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_runs(benchmark, flags, shown):
    command = [sys.executable, f"benchmarks/{benchmark}.py", *flags.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=560)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [words for words in shown if words not in done.stdout] == []
