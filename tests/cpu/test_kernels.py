"""The fast pieces against stock Paddle, in subprocesses: numbers, falling back, leaving others alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cpu.test_settings import VARIABLES

HERE = Path(__file__).resolve().parent
LAYOUTS = ("heads", "gqa", "full", "full_attn", "core_attn", "hooks", "frozen_norms")


def start(script: str, *argv: str, **environment: str) -> subprocess.Popen:
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.Popen(
        [sys.executable, str(HERE / script), *argv],
        env={**clean, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def arrays_of_runs(folder: Path, *speeds: str, **environment: str) -> list[dict[str, np.ndarray]]:
    """The arrays of a training of model_runs.py at each of these speeds; they run side by side."""
    files = [folder / f"{number}.npz" for number in range(len(speeds))]
    started = [
        start("model_runs.py", speed, str(file), OMP_NUM_THREADS="2", **environment)
        for speed, file in zip(speeds, files, strict=True)
    ]
    for process in started:
        finish(process)
    return [dict(np.load(file)) for file in files]


@pytest.mark.long
def test_every_layout_equals_stock_and_gives_the_same_bits_again(tmp_path):
    stock, fast, again = arrays_of_runs(tmp_path, "off", "auto", "auto")
    assert fast.keys() == again.keys()
    for layout in LAYOUTS:
        assert_equals_stock(stock, fast, layout)
        assert_same_bits(fast, layout, again, layout)
    for layout in ("full", "full_attn", "core_attn", "hooks"):
        assert_same_bits(fast, "heads", fast, layout)


def assert_same_bits(run: dict[str, np.ndarray], layout: str, other: dict[str, np.ndarray], other_layout: str) -> None:
    names = [name.partition("/")[2] for name in run if name.startswith(f"{layout}/")]
    assert names
    for name in names:
        assert (run[f"{layout}/{name}"] == other[f"{other_layout}/{name}"]).all(), (layout, other_layout, name)


def assert_equals_stock(stock: dict[str, np.ndarray], fast: dict[str, np.ndarray], layout: str) -> None:
    stock, fast = ({name: run[name] for name in run if name.startswith(layout + "/")} for run in (stock, fast))
    assert stock.keys() == fast.keys()
    losses = f"{layout}/losses"
    assert len(stock[losses]) == 10
    assert np.abs(stock[losses] - fast[losses]).max() < 5e-5
    np.testing.assert_allclose(fast[f"{layout}/logits"], stock[f"{layout}/logits"], atol=5e-5)
    gradients = [name for name in stock if name.startswith(f"{layout}/gradient ")]
    assert len(gradients) == (29 if layout == "frozen_norms" else 39)
    for name in gradients:
        off_by = np.linalg.norm(stock[name] - fast[name]) / np.linalg.norm(stock[name])
        assert off_by < 2e-5, f"{name}: {off_by}"


@pytest.fixture(scope="module")
def answers():
    return json.loads(finish(start("fallbacks.py")).splitlines()[-1])


def test_says_what_was_replaced_and_does_it_once(answers):
    assert answers["line"] == (
        "cpu_fast: LlamaForCausalLM: replaced 9 x RMSNorm, 4 x rotary embedding, 4 x causal attention, 4 x SwiGLU"
    )
    assert answers["second_line"] == "cpu_fast: LlamaForCausalLM: nothing replaced"
    assert answers["stride_kernel"] is False  # the setting reached Paddle


@pytest.mark.parametrize(
    ("call", "stock_attention", "stock_rotary"),
    [
        ("plain", 0, 0),
        ("grouped_heads", 0, 0),
        ("mask_of_ones", 0, 0),
        ("padding", 2, 0),
        ("mask_4d", 2, 0),
        ("positions_by_row", 0, 2),
        ("alibi", 2, 0),
        ("flash_attention", 2, 0),
        ("output_attentions", 2, 0),
    ],
)
def test_what_does_not_fit_goes_to_stock(answers, call, stock_attention, stock_rotary):
    """In both layers of the model; and the logits are stock's to the bit."""
    expected = {"difference": 0.0, "stock_attention": stock_attention, "stock_rotary": stock_rotary}
    assert answers["calls"][call] == expected


def test_the_rest_of_what_does_not_fit(answers):
    """Other precisions, positions beside cached keys and ALiBi without a mask go to stock, another model in the process
    is left alone, generation with cached keys gives the same tokens, tables are dropped when many shapes come."""
    for name in ("float64_norm", "other_model_changed", "longer_table", "alibi_without_mask"):
        assert answers[name] == 0.0, name
    assert answers["generated_equal"] is True and answers["tables_kept"] == 4
    assert answers["sequence_parallel"]["shape"] == [16, 64]
    assert answers["sequence_parallel"]["difference"] < 1e-6


@pytest.mark.parametrize(
    ("family", "says"),
    [
        ("qwen2", "replaced 5 x RMSNorm, 2 x rotary embedding; stock: causal attention, SwiGLU"),
        ("qwen3", "replaced 9 x RMSNorm, 2 x rotary embedding; stock: causal attention, SwiGLU"),
        ("mistral", "replaced 5 x RMSNorm; stock: rotary embedding, causal attention, SwiGLU"),
        ("bloom", "nothing replaced"),
    ],
)
def test_other_families(answers, family, says):
    assert answers[family]["line"].endswith(says)
    assert answers[family]["weights"] >= 20
    assert answers[family]["loss"] < 5e-6
    assert answers[family]["gradient"] < 2e-5
