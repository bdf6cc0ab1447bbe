"""Checks that train the tiny model by the product's own commands and compare losses. No Paddle here."""

import hashlib
import re
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from launch.certify.bench import FULL_FLOAT32, Bench, CheckFailed, Step, steps, tiny_pretraining
from launch.config.flag_values import Flags
from launch.devices.cards import list_cards
from launch.devices.precision import bf16_obstacle

STEPS = 5
# float32: other kernels sum in another order. Mistakes in a layout gave 4e-3 to 2e-1 (tests/distributed).
TOLERANCE = 1e-4
# 8 bits of bfloat16 in weights and activations; both dtypes are compared with float32.
HALF_TOLERANCE = 2e-2


def card_against_cpu(bench: Bench) -> None:
    """float32 on the CPU is right; the card in float32 and in each half precision is compared with it."""
    flags = tiny_pretraining(bench.materials, STEPS)
    cpu = steps(bench.train_well("cpu", "run_pretrain", flags, on_cpu=True))
    card = steps(bench.train_well("float32", "run_pretrain", flags, **FULL_FLOAT32))
    _compare(bench, "float32", "the CPU", cpu, card, TOLERANCE)
    for dtype, changes in _half(bench).items():
        card = steps(bench.train_well(dtype, "run_pretrain", flags | changes))
        _compare(bench, dtype, "float32 on the CPU", cpu, card, HALF_TOLERANCE)


def _half(bench: Bench) -> dict[str, dict]:
    """Flags of each half precision that the card has. A CPU has none."""
    if bench.pretend:
        return {}
    level = {"fp16_opt_level": ["O2"]}
    found = {"float16": {"fp16": ["1"], "scale_loss": ["1024"]} | level}
    if not bf16_obstacle(list_cards()[0].compute_capability):
        found["bfloat16"] = {"bf16": ["1"]} | level
    return found


def _compare(bench: Bench, what: str, other: str, expected: list[Step], found: list[Step], tolerance: float) -> None:
    """One row: the loss of each step, at most `tolerance` apart, and the gradient norm, relative, ten times as much;
    0: equal to the bit."""
    if len(expected) != len(found) or not found:
        raise CheckFailed(f"{len(found)} steps were logged, {len(expected)} by {other}")
    loss = np.abs([one.loss - other.loss for one, other in zip(expected, found, strict=True)]).max()
    norm = np.abs([other.grad_norm / one.grad_norm - 1 for one, other in zip(expected, found, strict=True)]).max()
    allowed = f"{tolerance:.0e} and {10 * tolerance:.0e} apart at most" if tolerance else "equal to the bit"
    text = f"losses {loss:.1e}, |g| {norm:.1e} apart in {len(found)} steps, the last loss is {found[-1].loss:.4f}"
    numbers = {"losses": [step.loss for step in found], "losses_expected": [step.loss for step in expected]}
    ok = loss <= tolerance and norm <= 10 * tolerance  # never where one is no number
    bench.row(what, f"losses and |g| of {other}, {allowed}", text, bool(ok), **numbers)


# ---- several cards


@dataclass(frozen=True)
class Way:
    """One way to divide the tiny model's training over cards, with 4 samples a step."""

    name: str
    cards: int
    accumulation: int
    flags: dict[str, str]


TENSOR, PIPELINE = {"tensor_parallel_degree": "2"}, {"pipeline_parallel_degree": "2"}
WAYS = (
    Way("data parallel 2", 2, 2, {}),
    Way("tensor parallel 2", 2, 4, TENSOR),
    Way("tensor parallel 2, sequence parallel", 2, 4, TENSOR | {"sequence_parallel": "1"}),
    Way("pipeline parallel 2", 2, 4, PIPELINE),
    Way("sharding stage 1", 2, 2, {"sharding": "stage1"}),
    Way("sharding stage 2", 2, 2, {"sharding": "stage2"}),
    Way("sharding stage 3", 2, 2, {"sharding": "stage3"}),
    Way("tensor parallel 2 x pipeline parallel 2", 4, 4, TENSOR | PIPELINE),
    Way("tensor parallel 2 x sharding stage 2 x 2", 4, 2, TENSOR | {"sharding": "stage2"}),
    Way("all of them: 2 x 2 x sharding stage 1 x 2", 8, 2, TENSOR | PIPELINE | {"sharding": "stage1"}),
)


def layouts(bench: Bench) -> None:
    """Every layout gives the losses of one card: what the cards exchange over NCCL is right."""
    if not bench.needs_cards(2):
        return
    flags = tiny_pretraining(bench.materials, STEPS)
    one = steps(bench.train_well("one-card", "run_pretrain", flags, **FULL_FLOAT32))
    for way in WAYS:
        if way.cards > bench.cards:
            bench.row(way.name, f"{way.cards} cards", f"{bench.cards} here", None)
            continue
        changes = {"gradient_accumulation_steps": str(way.accumulation)} | way.flags
        _row_of_a_run(bench, way.name, flags | _as_flags(changes), way.cards, "one card", one, TOLERANCE, FULL_FLOAT32)


def offload(bench: Bench) -> None:
    """States, gradients and parameters in host memory are the same numbers as on the card."""
    flags = tiny_pretraining(bench.materials, STEPS, deterministic="1")
    one = steps(bench.train_well("none", "run_pretrain", flags))
    _row_of_a_run(bench, "--offload_optim 1", flags | _as_flags({"offload_optim": "1"}), 1, "none", one, 0)
    if not bench.needs_cards(2):
        return
    for stage in ("stage2", "stage3"):
        stock = flags | _as_flags({"sharding": stage, "gradient_accumulation_steps": "2"})
        expected = steps(bench.train_well(stage, "run_pretrain", stock, 2))
        offloaded = stock | {"sharding": [f"{stage} offload"]}
        _row_of_a_run(bench, f"{stage} offload", offloaded, 2, f"{stage} without", expected, 0)


def _row_of_a_run(
    bench: Bench,
    what: str,
    flags: Flags,
    cards: int,
    other: str,
    expected: list[Step],
    tolerance: float,
    environment: dict[str, str] | None = None,
) -> None:
    """A run that fails is a ✗ of its row; the other rows are still tried."""
    name = re.sub(r"\W+", "-", what).strip("-")
    try:
        found = steps(bench.train_well(name, "run_pretrain", flags, cards, **(environment or {})))
        _compare(bench, what, other, expected, found, tolerance)
    except CheckFailed as error:
        bench.row(what, f"losses and |g| of {other}", str(error), False)


# ---- resume

KILLED_AT, SAVE_STEPS, RESUME_STEPS = 6, 3, 8


def resume(bench: Bench) -> None:
    """Killed within a save and started again, a run ends with the losses and the weights of one that was not."""
    _resume(bench, "one card", 1, {})
    if bench.cards >= 2:
        _resume(bench, "sharding stage 2 on 2 cards", 2, {"sharding": "stage2", "gradient_accumulation_steps": "2"})


def _resume(bench: Bench, what: str, cards: int, changes: dict[str, str]) -> None:
    flags = tiny_pretraining(
        bench.materials, RESUME_STEPS, deterministic="1", save_strategy="steps", save_steps=str(SAVE_STEPS), **changes
    )
    whole = bench.train_well(f"whole-{cards}", "run_pretrain", flags, cards)
    killed = f"killed-{cards}"
    exit_code = bench.train(killed, "run_pretrain", flags, cards, LAUNCH_FAULT=f"before-manifest@{KILLED_AT}")
    if exit_code != 128 + signal.SIGKILL:
        raise CheckFailed(f"the run to be killed ended with exit code {exit_code}: {bench.log_end(killed)}")
    resumed = bench.train_well(killed, "run_pretrain", flags, cards)
    _compare(bench, f"steps, {what}", "a run that was not killed", steps(whole), steps(resumed), 0)
    same = weights_digest(whole) == weights_digest(resumed)
    found = "the same bytes" if same else "other bytes"
    bench.row(f"weights, {what}", "those of a run that was not killed, to the byte", found, same)


def weights_digest(directory: Path) -> str:
    """SHA-256 of the model's weights. Raises CheckFailed where there are none."""
    files = sorted(directory.glob("model*.safetensors"))
    if not files:
        raise CheckFailed(f"no weights in {directory}")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _as_flags(values: dict[str, str]) -> Flags:
    return {name: [value] for name, value in values.items()}
