"""Checks that train and serve the tiny model by the product's own commands, and compare losses and answers.

No Paddle here.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from launch.certify.bench import (
    FULL_FLOAT32,
    MATERIALS,
    PRETRAIN,
    ROOT,
    Bench,
    CheckFailed,
    LoggedStep,
    as_flags,
    make_materials,
    steps,
    tiny_pretraining,
)
from launch.config.flag_values import Flags
from launch.devices.cards import list_cards
from launch.processes.logs import last_lines
from launch.processes.orphans import signal_at_parents_end
from launch.switches.precision import bf16_obstacle

STEPS = 5
# float32: other kernels sum in another order. Mistakes in a layout gave 4e-3 to 2e-1 (tests/distributed).
TOLERANCE = 1e-4
# 8 bits of bfloat16 in weights and activations; both dtypes are compared with float32.
HALF_TOLERANCE = 2e-2


def on_cards(name: str, *times: tuple[float, float] | None) -> pytest.MarkDecorator:
    """Make a check for 1, 2, 4 and 8 cards of a test: checks of few cards run side by side.

    times: for each number, the seconds on cards and pretended; None where the test has nothing for so many.
    """
    known = [(cards, *time) for cards, time in zip((1, 2, 4, 8), times, strict=False) if time]
    return pytest.mark.parametrize(
        "cards",
        [
            pytest.param(
                cards,
                id=name if cards == known[0][0] else f"{name}-{cards}-cards",
                marks=pytest.mark.card(cards=cards, seconds=seconds, pretended=pretended),
            )
            for cards, seconds, pretended in known
        ],
    )


# Each tensor of the tiny model is one page.
EIGHT_BITS = {"optim": "adamw_8bit", "offload_optim": "1", "update_in_backward": "1", "loss_chunk_tokens": "16"}
EIGHT_BITS["gradient_accumulation_steps"] = "1"


@pytest.mark.card(
    seconds=130,
    pretended=16,
    limit=400,
    silent=True,
    expected="the same losses: float32 within 1e-4, half precision within 2e-2",
    at_fault="no recipe can be trusted on this card in the dtype of the row",
)
def test_card_against_cpu(bench: Bench) -> None:
    """float32 on the CPU is right; the card in float32 and in each half precision is compared with it. Moments in 16
    and 8 bits are rounded by the same random numbers on both; the latter come from host memory to updates within the
    backward pass."""
    flags = tiny_pretraining(bench.materials, STEPS)
    cpu = steps(bench.train("cpu", flags, on_cpu=True))
    card = steps(bench.train("float32", flags, environment=FULL_FLOAT32))
    compare_steps(bench, "float32", "the CPU", cpu, card, TOLERANCE)
    for dtype, changes in _half_precisions(bench).items():
        card = steps(bench.train(dtype, flags | changes))
        compare_steps(bench, dtype, "float32 on the CPU", cpu, card, HALF_TOLERANCE)
    narrow = flags | as_flags({"optim": "adamw_16bit_moment"})
    cpu = steps(bench.train("cpu-16-bit-moments", narrow, on_cpu=True))
    _run_and_compare(bench, "float32, moments in 16 bits", narrow, 1, "the CPU", cpu, TOLERANCE, FULL_FLOAT32)
    paged = flags | as_flags(EIGHT_BITS)
    cpu = steps(bench.train("cpu-8-bit-moments", paged, on_cpu=True))
    for dtype, changes in {"float32": {}, **_half_precisions(bench)}.items():
        if dtype != "float16":
            exact = (TOLERANCE, FULL_FLOAT32) if dtype == "float32" else (HALF_TOLERANCE, None)
            _run_and_compare(bench, f"{dtype}, paged moments in 8 bits", paged | changes, 1, "the CPU", cpu, *exact)


def _half_precisions(bench: Bench) -> dict[str, dict]:
    """Flags of each half precision that the card has. A CPU has none."""
    if bench.pretend:
        return {}
    level = {"fp16_opt_level": ["O2"]}
    found = {"float16": {"fp16": ["1"], "scale_loss": ["1024"]} | level}
    if not bf16_obstacle(list_cards()[0].compute_capability):
        found["bfloat16"] = {"bf16": ["1"]} | level
    return found


def compare_steps(
    bench: Bench, what: str, other: str, expected: list[LoggedStep], found: list[LoggedStep], tolerance: float
) -> None:
    """One row: the loss of each step, at most `tolerance` apart, and the gradient norm, relative, ten times as much;
    0: equal to the bit."""
    if len(expected) != len(found) or not found:
        raise CheckFailed(f"{len(found)} steps were logged, {len(expected)} by {other}")
    pairs = list(zip(expected, found, strict=True))
    loss = np.abs([right.loss - step.loss for right, step in pairs]).max()
    norm = np.abs([step.grad_norm / right.grad_norm - 1 for right, step in pairs]).max()
    allowed = f"{tolerance:.0e} and {10 * tolerance:.0e} apart at most" if tolerance else "equal to the bit"
    text = f"losses {loss:.1e}, |g| {norm:.1e} apart in {len(found)} steps, the last loss is {found[-1].loss:.4f}"
    losses, right = ([step.loss for step in logged] for logged in (found, expected))
    ok = loss <= tolerance and norm <= 10 * tolerance  # False where a value is NaN
    bench.row(what, f"losses and |g| of {other}, {allowed}", text, bool(ok), losses=losses, losses_expected=right)


# ---- what else is trained


# Of fine-tuning, in place of tiny_pretraining's; an empty flag is left out.
DIALOGUES = {"src_length": "32", "max_length": "64", "input_dir": "", "max_seq_length": ""}


@dataclass(frozen=True)
class Trained:
    """What is trained on a card and compared with a CPU or, in half precision, with the same without its switch.

    without: flags of the run in half precision that it is compared with, on the card; None: the CPU is, in float32.
    """

    name: str
    script: str
    flags: dict[str, str]
    without: dict[str, str] | None = None
    cards: int = 1
    model: str = MATERIALS


CHUNKS = {"loss_chunk_tokens": "16"}
PACKED = DIALOGUES | {"dataset_name_or_path": "pairs", "zero_padding": "1"}
PREFERENCES = DIALOGUES | {"dataset_name_or_path": "preferences", "lora": "1"}
FLASH, EXACT = {"use_flash_attention": "auto"}, {"use_flash_attention": "off"}
QWEN3, CHATGLM2 = "qwen3-rehearsal", "chatglm2-rehearsal"
TRAINED = (
    Trained("loss in chunks", "run_pretrain", CHUNKS),
    Trained("loss in chunks, half precision", "run_pretrain", CHUNKS, {"loss_chunk_tokens": "off"}),
    Trained("LoRA by DPO", "run_dpo", PREFERENCES),
    Trained("packed rows", "finetune_generation", PACKED),
    Trained("packed rows by FlashMask", "finetune_generation", PACKED | FLASH, EXACT),
    Trained("Qwen3", "run_pretrain", {"use_fused_rms_norm": "auto"}, model=QWEN3),
    Trained("ChatGLM2 in a pipeline", "run_pretrain", {"pipeline_parallel_degree": "2"}, cards=2, model=CHATGLM2),
)


@on_cards("methods", (240, 50), (30, 10))
@pytest.mark.card(
    limit=900,
    silent=True,
    expected="the same losses as on the CPU within 1e-4, in half precision as without the switch within 2e-2",
    at_fault="runs of the row's method, switch or model train something else on this card",
)
def test_methods(bench: Bench, cards: int) -> None:
    """Loss in chunks, packed rows, DPO, Qwen3; on two cards ChatGLM2 in a pipeline."""
    if not bench.needs_cards(cards):
        return
    for case in (case for case in TRAINED if case.cards == cards):
        dtypes = _half_precisions(bench) if case.without else {"float32": {}}
        if not dtypes:
            bench.row(case.name, "half precision", "a CPU has none", None)
            continue
        materials = make_materials(case.model)
        flags = tiny_pretraining(materials, STEPS) | as_flags(case.flags)
        if "dataset_name_or_path" in flags:
            flags |= as_flags({"dataset_name_or_path": materials / case.flags["dataset_name_or_path"]})
        flags = {name: value for name, value in flags.items() if value != [""]}
        other = {name: value for name, value in flags.items() if name != "pipeline_parallel_degree"}
        other |= as_flags(case.without or {})
        for dtype, half in dtypes.items():
            name, on_cpu = f"{case.name} in {dtype}", not case.without
            aside = re.sub(r"\W+", "-", f"{name}-other")
            expected = steps(bench.train(aside, other | half, on_cpu=on_cpu, script=case.script))
            run = (name, flags | half, case.cards, "the CPU" if on_cpu else "a run without")
            exact = (TOLERANCE, FULL_FLOAT32) if on_cpu else (HALF_TOLERANCE, None)
            _run_and_compare(bench, *run, expected, *exact, script=case.script)


# ---- several cards


@dataclass(frozen=True)
class TrainingLayout:
    """How the tiny model's training is divided over cards, with 4 samples a step. half: in half precision, too."""

    name: str
    cards: int
    accumulation: int
    flags: dict[str, str]
    half: bool = False


TENSOR, PIPELINE = {"tensor_parallel_degree": "2"}, {"pipeline_parallel_degree": "2"}
LAYOUTS = (
    TrainingLayout("data parallel 2", 2, 2, {}),
    TrainingLayout("tensor parallel 2", 2, 4, TENSOR),
    TrainingLayout("tensor parallel 2, sequence parallel", 2, 4, TENSOR | {"sequence_parallel": "1"}, True),
    TrainingLayout("pipeline parallel 2", 2, 4, PIPELINE, True),
    TrainingLayout("two ranks share a sample", 2, 4, {"sep_parallel_degree": "2"}, True),
    TrainingLayout("sharding stage 1", 2, 2, {"sharding": "stage1"}),
    TrainingLayout("sharding stage 2", 2, 2, {"sharding": "stage2"}),
    TrainingLayout("sharding stage 3", 2, 2, {"sharding": "stage3"}, True),
    TrainingLayout("tensor parallel 2 x pipeline parallel 2", 4, 4, TENSOR | PIPELINE),
    TrainingLayout("tensor parallel 2 x sharding stage 2 x 2", 4, 2, TENSOR | {"sharding": "stage2"}),
    TrainingLayout("all of them: 2 x 2 x sharding stage 1 x 2", 8, 2, TENSOR | PIPELINE | {"sharding": "stage1"}),
)


@on_cards("layouts", None, (260, 30), (50, 1), (40, 1))
@pytest.mark.card(
    limit=1500,
    silent=True,
    expected="each layout gives the losses of one card, float32 within 1e-4, half precision within 2e-2",
    at_fault="recipes with the layout of the row train something else than one card would",
)
def test_layouts(bench: Bench, cards: int) -> None:
    """Every layout of so many cards gives the losses of one: what the cards exchange over NCCL is right."""
    if not bench.needs_cards(cards):
        return
    flags = tiny_pretraining(bench.materials, STEPS)
    layouts = [layout for layout in LAYOUTS if layout.cards == cards]
    exact = {"float32": ({}, TOLERANCE, FULL_FLOAT32)}
    rounded = {dtype: (half, HALF_TOLERANCE, None) for dtype, half in _half_precisions(bench).items()}
    for dtype, (changes, tolerance, environment) in (exact | rounded).items():
        chosen = [layout for layout in layouts if layout.half or dtype == "float32"]
        if not chosen:
            continue
        one_card = steps(bench.train(f"one-card-{dtype}", flags | changes, environment=environment))
        for layout in chosen:
            what = layout.name if dtype == "float32" else f"{layout.name}, {dtype}"
            other = changes | as_flags({"gradient_accumulation_steps": str(layout.accumulation)} | layout.flags)
            _run_and_compare(bench, what, flags | other, cards, "one card", one_card, tolerance, environment)


@on_cards("offload", (60, 10), (100, 15))
@pytest.mark.card(
    limit=900,
    silent=True,
    expected="the losses of a run without offload, to the bit",
    at_fault="pretrain-baichuan13b-lora, finetune-chatglm2-6b-2gpu and all runs with the words of the row",
)
def test_offload(bench: Bench, cards: int) -> None:
    """States, gradients, parameters and activations in host memory are the same numbers as on the card."""
    if not bench.needs_cards(cards):
        return
    flags = tiny_pretraining(bench.materials, STEPS, deterministic="1")
    if cards == 1:
        in_memory = steps(bench.train("none", flags))
        _run_and_compare(bench, "--offload_optim 1", flags | as_flags({"offload_optim": "1"}), 1, "none", in_memory, 0)
        recomputed = flags | as_flags({"recompute": "1"})
        expected = steps(bench.train("recompute", recomputed))
        activations = recomputed | as_flags({"offload": "activations"})
        _run_and_compare(bench, "--offload activations", activations, 1, "recompute without", expected, 0)
        return
    for stage in ("stage2", "stage3"):
        stock = flags | as_flags({"sharding": stage, "gradient_accumulation_steps": "2"})
        expected = steps(bench.train(stage, stock, 2))
        offloaded = stock | {"sharding": [f"{stage} offload"]}
        _run_and_compare(bench, f"{stage} offload", offloaded, 2, f"{stage} without", expected, 0)


def _run_and_compare(
    bench: Bench,
    what: str,
    flags: Flags,
    cards: int,
    other: str,
    expected: list[LoggedStep],
    tolerance: float,
    environment: dict[str, str] | None = None,
    script: str = PRETRAIN.stem,
) -> None:
    """A run that fails is a ✗ of its row; the other rows are still tried."""
    name = re.sub(r"\W+", "-", what).strip("-")
    try:
        found = steps(bench.train(name, flags, cards, environment=environment, script=script))
        compare_steps(bench, what, other, expected, found, tolerance)
    except CheckFailed as error:
        bench.row(what, f"losses and |g| of {other}", str(error), False)


# ---- resume

KILLED_AT, SAVE_STEPS, RESUME_STEPS = 6, 3, 8


@on_cards("resume", (75, 7), (75, 8))
@pytest.mark.card(
    limit=900,
    silent=True,
    expected="losses and weights of a run that was not killed, to the bit, with --deterministic 1",
    at_fault="a run of any recipe that is killed may not go on as it would have; checkpoints themselves are whole",
)
def test_resume(bench: Bench, cards: int) -> None:
    """Killed within a save and started again, a run ends with the losses and the weights of one that was not."""
    if not bench.needs_cards(cards):
        return
    stage2 = {"sharding": "stage2", "gradient_accumulation_steps": "2"}
    what, changes = ("one card", {}) if cards == 1 else ("sharding stage 2 on 2 cards", stage2)
    flags = tiny_pretraining(
        bench.materials, RESUME_STEPS, deterministic="1", save_strategy="steps", save_steps=str(SAVE_STEPS), **changes
    )
    whole = bench.train(f"whole-{cards}", flags, cards)
    killed = f"killed-{cards}"
    fault = {"LAUNCH_FAULT": f"before-manifest@{KILLED_AT}"}
    bench.train(killed, flags, cards, environment=fault, exit_code=128 + signal.SIGKILL)
    resumed = bench.train(killed, flags, cards)
    compare_steps(bench, f"steps, {what}", "a run that was not killed", steps(whole), steps(resumed), 0)
    same = weights_digest(whole) == weights_digest(resumed)
    found = "the same bytes" if same else "other bytes"
    bench.row(f"weights, {what}", "those of a run that was not killed, to the byte", found, same)


def weights_digest(directory: Path) -> str:
    """SHA-256 of the model's weights. Raises CheckFailed where there are none."""
    files = sorted(directory.glob("model*.safetensors"))
    if not files:
        raise CheckFailed(f"no weights in {directory}")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


# ---- the server

PROMPTS = ["bade gano misura" * (number + 1) for number in range(8)]
TOKENS = 16
SECONDS_TO_START = 150.0
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/v1")


@on_cards("serving", (60, 13), (45, 12))
@pytest.mark.card(
    limit=400,
    quick=True,
    silent=True,
    expected="the answers that the CPU gives, to requests alone and together, of one card and of two, and an orderly "
    "end; in half precision the same log-probabilities alone and together",
    at_fault="make serve and make predict answer something else on this card than the model says",
)
def test_serving(bench: Bench, cards: int) -> None:
    """Greedy answers in float32; all prompts at once, which are answered in one batch; on two cards as on one."""
    if not bench.needs_cards(cards):
        return
    with _server(bench, "card", bench.pretend) as port:
        alone = [_ask(port, prompt)["text"] for prompt in PROMPTS]
        together = _ask_together(port)
    if cards == 2:
        with _server(bench, "two cards", bench.pretend, cards=2) as port:
            _compare_answers(bench, "asked of two cards", "as of one", alone, _ask_together(port))
        return
    _compare_answers(bench, "asked together", "as asked alone", alone, together)
    if bench.pretend:
        bench.row("asked alone", "as on the CPU", "it is the CPU", None)
        return
    for dtype in _half_precisions(bench):
        _serve_in(bench, dtype)
    with _server(bench, "cpu", True) as port:
        right = [_ask(port, prompt)["text"] for prompt in PROMPTS]
    _compare_answers(bench, "asked alone", "as on the CPU", right, alone)


def _serve_in(bench: Bench, dtype: str) -> None:
    """Log-probabilities of a batch beside those of each prompt alone: half precision rounds them apart."""
    with _server(bench, dtype, False, dtype=dtype) as port:
        alone = [_likelihoods(port, prompt) for prompt in PROMPTS]
        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            together = list(pool.map(lambda prompt: _likelihoods(port, prompt), PROMPTS))
    pairs = zip(alone, together, strict=True)
    apart = max(float(np.abs(np.subtract(one, other)).max()) for one, other in pairs)
    allowed = 10 * HALF_TOLERANCE
    found = f"{apart:.1e} apart at most"
    bench.row(f"log-probabilities in {dtype}", f"{allowed:.0e} apart, alone and together", found, apart <= allowed)


def _likelihoods(port: int, prompt: str) -> list[float]:
    """Of the tokens of a prompt, but the first."""
    choice = _ask(port, prompt, max_tokens=1, logprobs=1, echo=True)
    return choice["logprobs"]["token_logprobs"][1:-1]


def _ask_together(port: int) -> list[str]:
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(lambda prompt: _ask(port, prompt)["text"], PROMPTS))


def _compare_answers(bench: Bench, what: str, expected: str, right: list[str], found: list[str]) -> None:
    different = [number for number, pair in enumerate(zip(right, found, strict=True)) if pair[0] != pair[1]]
    text = f"{len(different)} of {len(right)} answers differ"
    if different:
        text += f", the first: {found[different[0]]!r}, not {right[different[0]]!r}"
    bench.row(what, expected, text, not different)


@contextmanager
def _server(bench: Bench, name: str, on_cpu: bool, cards: int = 1, dtype: str = "float32") -> Iterator[int]:
    """The port of a server with the tiny model. At the end it gets SIGTERM, and must stop."""
    log = bench.directory / f"{name}.log"
    device = "cpu" if on_cpu else "gpu"
    command = [sys.executable, str(ROOT / "launch" / "commands" / "serve.py"), "--port", "0", "--grpc_port", "0"]
    command += ["--model_name_or_path", str(bench.materials / "model"), "--device", device, "--dtype", dtype]
    command += ["--tensor_parallel_degree", str(cards)]
    environment = os.environ | FULL_FLOAT32 | ({"CUDA_VISIBLE_DEVICES": ""} if on_cpu else {})
    with open(log, "wb") as file:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: signal_at_parents_end(signal.SIGTERM),
        )
    try:
        yield _port(process, log)
        process.terminate()
        exit_code = process.wait(timeout=60)
        bench.row(f"the server on the {name} stops when it is asked to", "exit code 0", f"{exit_code}", exit_code == 0)
    finally:
        process.kill()


def _port(process: subprocess.Popen, log: Path) -> int:
    """Once it answers. Raises CheckFailed where it ends before, or does not answer in time."""
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline and process.poll() is None:
        output = log.read_text(encoding="utf-8", errors="replace")
        if "\nready" in output and (address := ADDRESS.search(output)):
            return int(address[1])
        time.sleep(0.2)
    raise CheckFailed(f"the server did not answer: {last_lines(log, 3)}")


def _ask(port: int, prompt: str, **changes: object) -> dict:
    body = {"model": "model", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0} | changes
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as reply:
        return json.loads(reply.read())["choices"][0]
