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


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The arrays of three trainings: stock, and fast twice."""
    return arrays_of_runs(tmp_path_factory.mktemp("runs"), "off", "auto", "auto")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_and_gradients_equal_stock(runs, layout):
    assert_equals_stock(*runs[:2], layout)


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


def test_recomputing_changes_no_bit(runs):
    for layout in ("full", "full_attn", "core_attn", "hooks"):
        for name, array in runs[1].items():
            if name.startswith("heads/"):
                assert (runs[1][name.replace("heads", layout)] == array).all(), (layout, name)


def test_two_runs_are_bit_identical(runs):
    _, fast, again = runs
    assert fast.keys() == again.keys()
    for name in fast:
        assert (fast[name] == again[name]).all(), name


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


def test_other_precisions_go_to_stock(answers):
    assert answers["float64_norm"] == 0.0


def test_another_model_in_the_process_is_left_alone(answers):
    assert answers["other_model_changed"] == 0.0


def test_generation_with_cached_keys_gives_the_same_tokens(answers):
    assert answers["generated_equal"] is True


def test_positions_beside_cached_keys_go_to_stock(answers):
    assert answers["longer_table"] == 0.0


def test_alibi_without_mask_goes_to_stock(answers):
    assert answers["alibi_without_mask"] == 0.0


def test_rows_of_sequence_parallel(answers):
    assert answers["sequence_parallel"]["shape"] == [16, 64]
    assert answers["sequence_parallel"]["difference"] < 1e-6


def test_tables_are_dropped_when_many_shapes_come(answers):
    assert answers["tables_kept"] == 4


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
