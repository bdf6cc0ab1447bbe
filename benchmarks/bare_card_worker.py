"""The parts of benchmarks/bare_card.py, each in a process of its own. Numbers go to --output after each measurement."""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from benchmarks import rms_norm_gpu
from launch.config.layout import Layout
from launch.families.named_configs import load_config
from launch.families.parameters import with_layers
from launch.plan.hardware import CARDS, Card, card_named
from launch.plan.job import BFLOAT16, Job
from launch.plan.step import FORWARD, Place, replay
from launch.plan.time_plan import Traffic
from launch.plan.work import ATTENTION, MATMUL, MEMORY, PCIE, Pace, Work

KERNELS = ROOT / "custom_ops" / "fused_rms_norm"
EPSILON = 1e-6
LAYERS = 12  # of decoding
DTYPE_PAIRS = ("float32-float32", "bfloat16-bfloat16", "bfloat16-float32", "float16-float16", "float16-float32")
BACKENDS = {"flash-attention 2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


class CardRun:
    """A part that runs: its device, its numbers so far, and whether all of them are within their tolerances."""

    def __init__(self, device: str, output: Path | None):
        self.device, self.output = device, output
        self.on_card = device == "cuda"
        self.numbers: dict = {}
        self.ok = True

    def store(self, key: str, value: object) -> None:
        """Print a number and write all of them, so that a later crash does not lose it."""
        print(f"{key}: {json.dumps(value)}", flush=True)
        self.numbers[key] = value
        if self.output:
            self.output.write_text(json.dumps(self.numbers))

    def expect(self, key: str, found: float, allowed: float) -> None:
        """Store an error; one above `allowed`, or not a number, makes the part fail."""
        self.ok &= found <= allowed
        self.store(key, {"error": found, "allowed": allowed})

    def seconds(self, call: Callable[[], object], calls: int = 10) -> float:
        """Return the median time of a call, after three that are not counted."""
        for _ in range(3 if self.on_card else 1):
            call()
        return statistics.median(self._once(call) for _ in range(calls if self.on_card else 2))

    def _once(self, call: Callable[[], object]) -> float:
        if not self.on_card:
            began = time.perf_counter()
            call()
            return time.perf_counter() - began
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(rms_norm_gpu.SLEEP_CYCLES)  # the host queues the call meanwhile: its speed does not count
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def planned_card(self) -> Card:
        """Return the catalogue's entry of this card; an A100's on a CPU, where only the script is tried."""
        return card_named(torch.cuda.get_device_name()) if self.on_card else CARDS["A100-80G"]


def relative_error(found: torch.Tensor, right: torch.Tensor) -> float:
    """Return the largest difference, as a share of the largest right number."""
    return float((found.detach().double() - right.detach()).abs().max() / right.detach().abs().max())


# Parts ---------------------------------------------------------------------------------------------------------------


def card(run: CardRun) -> None:
    """Store what the launcher reads of this card (launch/devices/cards.py), torch's and the catalogue's values."""
    run.store("torch", {"version": torch.__version__, "cuda": torch.version.cuda})
    if not run.on_card:
        return
    from launch.devices.cards import driver, list_cards

    said, listed = torch.cuda.get_device_properties(0), list_cards()
    run.store("torch's", {"name": said.name, "bytes": said.total_memory, "capability": [said.major, said.minor]})
    run.store("driver", driver())
    for one in listed:
        run.store(
            f"card {one.index}",
            {
                "name": one.name,
                "bytes": one.memory_bytes,
                "free": one.free_bytes,
                "capability": one.compute_capability,
                "ecc": one.ecc,
                "mig": one.mig,
                "errors": one.memory_errors,
            },
        )
    planned = run.planned_card()
    run.store("catalogue", {"name": planned.name, "bytes": planned.memory_bytes})
    run.expect("bytes of the catalogue", abs(planned.memory_bytes / said.total_memory - 1), 0.02)
    capability = listed[0].compute_capability if listed else (said.major, said.minor)
    run.expect("capability", float(capability != planned.compute_capability), 0)


def rms_norm_check(run: CardRun) -> None:
    """Check the kernels against float64, without any framework (harness/check.cu), in every dtype and kernel."""
    with tempfile.TemporaryDirectory() as folder:
        program = _compile_check(run, Path(folder))
        cases = [[pair] for pair in DTYPE_PAIRS] if run.on_card else [["5", "96"]]
        for case, (code, output) in zip(cases, _at_once([[program, *case] for case in cases]), strict=True):
            lines = output.splitlines()
            wrong = [line for line in lines if line.startswith(("WRONG", "CUDA"))]
            run.store(" ".join(case), {"right": sum(line.startswith("right") for line in lines), "wrong": wrong[:10]})
            run.ok &= code == 0 and not wrong


def _at_once(commands: list[list]) -> Iterator[tuple[int, str]]:
    """Yield exit code and output of each command; as many run at a time as fit into the memory of the host."""

    def run_one(command: list) -> tuple[int, str]:
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    with ThreadPoolExecutor(5) as pool:
        yield from pool.map(run_one, commands)


def _compile_check(run: CardRun, folder: Path) -> Path:
    program = folder / "check"
    if not run.on_card:
        harness = KERNELS / "harness" / "cuda_on_cpu.py"
        subprocess.run([sys.executable, harness, program], check=True, capture_output=True)
        return program
    sys.path.insert(0, str(KERNELS))
    from nvcc import find_nvcc

    nvcc = find_nvcc()
    assert nvcc, "no nvcc: put its folder on PATH"
    run.store("nvcc", nvcc.version)
    sources = [KERNELS / "harness" / "check.cu", KERNELS / "csrc" / "rms_norm_cuda.cu"]
    command = [nvcc.path, "-O3", "-std=c++17", "-arch=native", "-lineinfo", *sources, "-o", program]
    subprocess.run(list(map(str, command)), check=True)
    return program


def rms_norm_memory(run: CardRun) -> None:
    """Run compute-sanitizer over shapes of each kernel: accesses out of bounds, races, values never written."""
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not run.on_card:
        return run.store("left out", "needs a card")
    with tempfile.TemporaryDirectory() as folder:
        program = _compile_check(run, Path(folder))
        shapes = (("5", "100"), ("33", "4096"), ("9", "16384"), ("3", "33000"))
        cases = [(tool, *shape) for tool in ("memcheck", "racecheck", "initcheck", "synccheck") for shape in shapes]
        commands = [[sanitizer, "--tool", tool, "--error-exitcode", "9", program, *shape] for tool, *shape in cases]
        for case, (code, output) in zip(cases, _at_once(commands), strict=True):
            run.ok &= code == 0
            run.store(" ".join(case), output.strip().splitlines()[-1] if code == 0 else output[-800:])


def rms_norm_speed(run: CardRun) -> None:
    """Measure the bandwidth of the kernels, a copy and torch's own, also for more than 2^31 elements."""
    if not run.on_card:
        return run.store("left out", "needs a card")
    norms = {name: norm for name, norm in rms_norm_gpu.ways(rms_norm_gpu.build()).items() if name in ("ours", "torch")}
    copy = rms_norm_gpu.copy_rate()
    run.store("copy GB/s", copy)
    for rows, hidden in (
        (327680, 128),
        (2048, 4096),
        (8192, 4096),
        (32768, 5120),
        (8192, 8192),
        (8192, 16384),
        (532480, 4096),
    ):
        for name, norm in norms.items():
            found = rms_norm_gpu.measure(norm, rows, hidden, "bfloat16", copy)
            shown = {
                way: {"us": round(cell["us"][1], 1), "of copy": round(cell["of copy"], 3)}
                for way, cell in found.items()
            }
            run.store(f"{name} [{rows}, {hidden}]", shown)
            torch.cuda.empty_cache()
    _many_elements(run, norms["ours"])


def _many_elements(run: CardRun, norm: Callable) -> None:
    """Check the first and last rows of a tensor of more than 2^31 elements."""
    rows, hidden = 2**31 // 4096 + 1000, 4096
    x = torch.randn(rows, hidden, device="cuda", dtype=torch.bfloat16).requires_grad_()
    weight = torch.ones(hidden, device="cuda", dtype=torch.bfloat16).requires_grad_()
    y = norm(x, weight)
    x_grad, weight_grad = torch.autograd.grad(y, [x, weight], torch.ones_like(y))
    sums = torch.zeros(hidden, device="cuda", dtype=torch.float64)
    worst = 0.0
    for start in range(0, rows, 65536):
        exact = x[start : start + 65536].detach().double()
        inverse = (exact.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
        right = exact * inverse
        sums += right.sum(0)
        right_grad = inverse - exact * inverse**3 * exact.mean(-1, keepdim=True)
        worst = max(worst, relative_error(y[start : start + 65536], right))
        worst = max(worst, relative_error(x_grad[start : start + 65536], right_grad))
    run.expect(f"[{rows}, {hidden}] y and x_grad", worst, 2.0**-7)
    run.expect(f"[{rows}, {hidden}] weight_grad", relative_error(weight_grad, sums), 2.0**-7)


def rates(run: CardRun) -> None:
    """Measure products, attention and copies as shares of the data sheet's rates, beside launch/plan/work.py."""
    planned = run.planned_card()
    side = 8192 if run.on_card else 64
    for dtype in ("bfloat16", "float16", "float32"):
        a, b = (torch.randn(side, side, device=run.device, dtype=getattr(torch, dtype)) for _ in range(2))
        rate = 2 * side**3 / run.seconds(lambda a=a, b=b: a @ b)
        run.store(f"matmul {dtype}", {"TFLOP/s": rate / 1e12, "share": rate / planned.flops(dtype), "plan": MATMUL})
    pace = Pace(planned, BFLOAT16, 2)
    for rows in (2048, 8192, 16384) if run.on_card else (32,):
        for inputs, outputs in (
            ((4096, 4096), (4096, 11008), (11008, 4096), (4096, 32000)) if run.on_card else ((64, 32),)
        ):
            x = torch.randn(rows, inputs, device=run.device, dtype=torch.bfloat16)
            weight = torch.randn(inputs, outputs, device=run.device, dtype=torch.bfloat16)
            found = run.seconds(lambda x=x, weight=weight: x @ weight)
            run.store(
                f"product [{rows}, {inputs}, {outputs}]",
                {"us": 1e6 * found, "planned us": 1e6 * pace.multiply(rows, inputs, outputs)},
            )
    for batch, length in ((4, 2048), (1, 8192)) if run.on_card else ((1, 32),):
        for name, seconds in _attention_seconds(run, batch, length).items():
            flops = 4 * batch * length**2 * 4096 / 2 if run.on_card else 4 * length**2 * 64 / 2
            share = flops / planned.half_flops
            run.store(
                f"attention {name} {batch} x {length}",
                {
                    "forward ms": 1e3 * seconds[0],
                    "share": share / seconds[0],
                    "backward ms": 1e3 * seconds[1],
                    "backward share": 2.5 * share / seconds[1],
                    "plan": ATTENTION,
                },
            )
    size = 2**30 if run.on_card else 2**20
    source, target = (torch.empty(size, dtype=torch.int8, device=run.device) for _ in range(2))
    rate = 2 * size / run.seconds(lambda: target.copy_(source))
    run.store("copy", {"GB/s": rate / 1e9, "share": rate / planned.memory_bandwidth, "plan": MEMORY})
    if not run.on_card:
        return
    pinned, pageable = torch.empty(size, dtype=torch.int8, pin_memory=True), torch.zeros(size, dtype=torch.int8)
    ways = {
        "to the card, pinned": (target, pinned),
        "to the host, pinned": (pinned, source),
        "to the card, pageable": (target, pageable),
        "to the host, pageable": (pageable, source),
    }
    for name, (to, frm) in ways.items():
        rate = size / run.seconds(lambda to=to, frm=frm: to.copy_(frm, non_blocking=True), 5)
        run.store(name, {"GB/s": rate / 1e9, "share": rate / planned.host_link, "plan": PCIE})


def _attention_seconds(run: CardRun, batch: int, length: int) -> dict[str, tuple[float, float]]:
    """Return the seconds of causal attention, forward and backward, by each backend that has it; 32 heads of 128."""
    heads, size = (32, 128) if run.on_card else (4, 16)
    shape = (batch, heads, length, size)
    qkv = [torch.randn(shape, device=run.device, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    found = {}
    for name, backend in BACKENDS.items() if run.on_card else [("any", SDPBackend.MATH)]:
        try:
            with sdpa_kernel(backend):
                forward = run.seconds(lambda: F.scaled_dot_product_attention(*qkv, is_causal=True).detach())
                y = F.scaled_dot_product_attention(*qkv, is_causal=True)
                gradient = torch.randn_like(y)
                backward = run.seconds(lambda y=y, g=gradient: torch.autograd.grad(y, qkv, g, retain_graph=True))
            found[name] = (forward, backward)
        except RuntimeError as error:
            run.store(f"attention {name}", f"not here: {str(error).splitlines()[0]}")
    return found


def decoding(run: CardRun) -> None:
    """Measure a step of decoding in bytes a second: products of few rows, and attention to a cache of keys and values.

    Twelve layers of Qwen3-8B's sizes, so that no weight stays in the L2 cache; one call an operator, as a framework
    without CUDA graphs queues them. The time of a step on the host counts.
    """
    heads, groups, size = (32, 8, 128) if run.on_card else (4, 2, 16)
    hidden, middle = (4096, 12288) if run.on_card else (64, 96)
    half = {"device": run.device, "dtype": torch.bfloat16}
    shapes = ((hidden, (heads + 2 * groups) * size), (heads * size, hidden), (hidden, 2 * middle), (middle, hidden))
    weights = [torch.randn(shape, **half) * 0.01 for _ in range(LAYERS) for shape in shapes]
    for rows in (1, 8, 16, 64, 256) if run.on_card else (1, 4):
        inputs = {width: torch.randn(rows, width, **half) for width in (hidden, middle)}
        found = _queued_seconds(run, lambda inputs=inputs: [inputs[len(weight)] @ weight for weight in weights])
        _store_traffic(run, f"products of {rows} rows", found, weights)
        for length in (512, 2048) if run.on_card else (32,):
            if rows * length > 2**17:  # 6.4 GB of keys and values
                continue
            cache = [torch.randn(2, rows, groups, length, size, **half) for _ in range(LAYERS)]
            query = torch.randn(rows, heads, 1, size, **half)
            found = _queued_seconds(
                run,
                lambda query=query, cache=cache: [
                    F.scaled_dot_product_attention(query, keys, values, enable_gqa=True) for keys, values in cache
                ],
            )
            _store_traffic(run, f"attention of {rows} rows to {length} tokens", found, cache)


def _store_traffic(run: CardRun, key: str, seconds: float, read: list[torch.Tensor]) -> None:
    rate = sum(one.numel() * one.element_size() for one in read) / seconds
    share = rate / run.planned_card().memory_bandwidth
    run.store(key, {"us a layer": 1e6 * seconds / LAYERS, "GB/s": rate / 1e9, "share": share})


def _queued_seconds(run: CardRun, call: Callable[[], object]) -> float:
    """Return the seconds of a call, of 20 that follow each other."""
    calls = 20 if run.on_card else 2
    wait = torch.cuda.synchronize if run.on_card else (lambda: None)
    for count in (2, calls):
        began = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        seconds = (time.perf_counter() - began) / count
    return seconds


class Layer(torch.nn.Module):
    """A decoder layer of LLaMA: RMSNorm, rotary positions, causal attention, SwiGLU; no biases."""

    def __init__(self, config: dict, length: int, run: CardRun):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.heads, self.backend = (
            config["num_attention_heads"],
            SDPBackend.FLASH_ATTENTION if run.on_card else SDPBackend.MATH,
        )
        like = {"device": run.device, "dtype": torch.bfloat16}
        shapes = {
            "q": (hidden, hidden),
            "k": (hidden, hidden),
            "v": (hidden, hidden),
            "o": (hidden, hidden),
            "gate": (inner, hidden),
            "up": (inner, hidden),
            "down": (hidden, inner),
        }
        self.weights = torch.nn.ParameterDict(
            {name: torch.randn(shape, **like) * 0.02 for name, shape in shapes.items()}
        )
        self.norms = torch.nn.ParameterList([torch.ones(hidden, **like) for _ in range(2)])
        angles = torch.arange(length).outer(10000.0 ** -torch.arange(0, 1, 2 / (hidden // self.heads))).repeat(1, 2)
        self.cosines, self.sines = (each.to(**like) for each in (angles.cos(), angles.sin()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the layer."""
        normed = F.rms_norm(x, x.shape[-1:], self.norms[0], EPSILON)
        q, k, v = (
            F.linear(normed, self.weights[name]).unflatten(-1, (self.heads, -1)).transpose(1, 2) for name in "qkv"
        )
        with sdpa_kernel(self.backend):
            context = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
        x = x + F.linear(context.transpose(1, 2).flatten(2), self.weights["o"])
        normed = F.rms_norm(x, x.shape[-1:], self.norms[1], EPSILON)
        gated = F.silu(F.linear(normed, self.weights["gate"])) * F.linear(normed, self.weights["up"])
        return x + F.linear(gated, self.weights["down"])

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate queries or keys by their positions."""
        first, second = x.chunk(2, -1)
        return x * self.cosines + torch.cat([-second, first], -1) * self.sines


def layer(run: CardRun) -> None:
    """Time and kept bytes of a LLaMA-7B layer beside the plan of the same job, part by part, and AdamW's update."""
    planned = run.planned_card()
    config = load_config("llama-7b" if run.on_card else "llama-rehearsal")
    for batch, length in ((1, 2048), (2, 2048), (4, 2048), (1, 8192)) if run.on_card else ((1, 32),):
        _layer_of(run, planned, config, batch, length)
        if run.on_card:
            torch.cuda.empty_cache()
    _update(run, planned, config)


def _job(config: dict, batch: int, length: int, recompute: str = "") -> Job:
    return Job(
        config,
        Layout(1, 1, 1, 1, ""),
        batch,
        1,
        length,
        compute=BFLOAT16,
        amp="O2",
        master_weights=True,
        flash_attention=True,
        fused_rms_norm=True,
        recompute=recompute,
    )


def _layer_of(run: CardRun, planned: Card, config: dict, batch: int, length: int) -> None:
    work = Work(_job(config, batch, length), Pace(planned, BFLOAT16, 2))
    block = Layer(config, length, run)
    x = torch.randn(batch, length, config["hidden_size"], device=run.device, dtype=torch.bfloat16).requires_grad_()
    gradient = torch.randn_like(x)
    trained = [x, *block.parameters()]

    def recomputed() -> None:
        torch.autograd.grad(checkpoint(block, x, use_reentrant=False), trained, gradient)

    with torch.no_grad():
        forward = run.seconds(lambda: block(x))
    both = run.seconds(lambda: torch.autograd.grad(block(x), trained, gradient))
    again = run.seconds(recomputed)
    products = _products_seconds(run, block, x)
    attention = next(iter(_attention_seconds(run, batch, length).values()))  # of the layer's backend
    ms = {
        "forward": (forward, work.forward.total),
        "forward and backward": (both, work.forward.total + work.backward.total),
        "the same, recomputed": (again, 2 * work.forward.total + work.backward.total),
        "products": (products, work.forward.products + work.backward.products),
        "attention": (sum(attention), work.forward.scores + work.backward.scores),
        "element-wise": (both - products - sum(attention), work.forward.elementwise + work.backward.elementwise),
    }
    shown = {
        name: {"ms": round(1e3 * a, 3), "planned": round(1e3 * b, 3), "ratio": round(b / a, 3)}
        for name, (a, b) in ms.items()
    }
    run.store(f"time {batch} x {length}", shown)
    if run.on_card:
        run.store(
            f"memory {batch} x {length}",
            {way or "kept": _kept(block, x, config, batch, length, way) for way in ("", "full")},
        )


def _products_seconds(run: CardRun, block: Layer, x: torch.Tensor) -> float:
    """Return the seconds of the seven products of a layer, forward and backward."""
    rows = x.detach().flatten(0, 1)
    total = 0.0
    for weight in block.weights.values():
        a = torch.randn(rows.shape[0], weight.shape[1], device=run.device, dtype=x.dtype).requires_grad_()
        g = torch.randn(rows.shape[0], weight.shape[0], device=run.device, dtype=x.dtype)
        total += run.seconds(lambda a=a, w=weight, g=g: torch.autograd.grad(F.linear(a, w), [a, w], g))
    return total


def _kept(block: Layer, x: torch.Tensor, config: dict, batch: int, length: int, recompute: str) -> dict:
    """Return the bytes that each of two layers saves for its backward pass, beside the plan's."""
    torch.cuda.synchronize()
    before, y = torch.cuda.memory_allocated(), x
    for _ in range(2):
        y = checkpoint(block, y, use_reentrant=False) if recompute else block(y)
    found = (torch.cuda.memory_allocated() - before) / 2
    peaks = [replay(_job(with_layers(config, layers), batch, length, recompute), Place())[FORWARD] for layers in (4, 6)]
    per_layer = [sum(peak.get(part, 0) for part in ("attention", "MLP", "norms", "residuals")) for peak in peaks]
    return {"bytes": found, "planned": (per_layer[1] - per_layer[0]) / 2}


def _update(run: CardRun, planned: Card, config: dict) -> None:
    """Measure AdamW on one layer's parameters in float32, from bfloat16 gradients to bfloat16 weights."""
    weights = list(Layer(config, 32, run).parameters())
    masters = [weight.detach().float().requires_grad_() for weight in weights]
    gradients = [torch.randn_like(weight) for weight in weights]
    optimizer = torch.optim.AdamW(masters, lr=1e-4, weight_decay=0.1, fused=True)

    def step() -> None:
        norm = torch.nn.utils.get_total_norm(gradients)
        for master, gradient in zip(masters, gradients, strict=True):
            master.grad = gradient.float().mul_((1 / (norm + 1e-6)).clamp(max=1.0))
        optimizer.step()
        for weight, master in zip(weights, masters, strict=True):
            weight.data.copy_(master)

    found, trained = run.seconds(step), sum(weight.numel() for weight in weights)
    job = _job(config, 1, 32)
    traffic = Traffic(job, Pace(planned, BFLOAT16, 2))
    run.store("update", {"ns a parameter": 1e9 * found / trained, "planned": 1e9 * traffic.update() / traffic.updated})


def head(run: CardRun) -> None:
    """Measure the output layer and cross entropy, forward and backward, beside the plan's time."""
    config = load_config("llama-7b" if run.on_card else "llama-rehearsal")
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    for batch, length in ((1, 2048), (4, 2048)) if run.on_card else ((1, 32),):
        x = torch.randn(batch * length, hidden, device=run.device, dtype=torch.bfloat16).requires_grad_()
        weight = (0.02 * torch.randn(vocabulary, hidden, device=run.device, dtype=torch.bfloat16)).requires_grad_()
        labels = torch.randint(vocabulary, (batch * length,), device=run.device)

        def step(x=x, weight=weight, labels=labels) -> None:
            torch.autograd.grad(F.cross_entropy(F.linear(x, weight).float(), labels), [x, weight])

        found = run.seconds(step)
        work = Work(_job(config, batch, length).changed(loss_chunk_tokens="off"), Pace(run.planned_card(), BFLOAT16, 2))
        run.store(f"{batch} x {length}", {"ms": 1e3 * found, "planned": 1e3 * work.head})


# What launch/ computes with Paddle, by torch's operators: whether the card's arithmetic has the properties needed -----


def alibi_columns(run: CardRun) -> None:
    """Check launch/models/alibi_columns.py: slopes in columns of the queries, positions in columns of the keys."""
    columns, parts_of_slope = 8, 3
    heads, size, length = (8, 128, 4096) if run.on_card else (2, 16, 64)
    slopes = torch.tensor([2.0 ** (-8 * (head + 1) / heads) for head in range(heads)], dtype=torch.float64)
    for dtype in (torch.bfloat16, torch.float16):
        q, k, v = (torch.randn(1, heads, length, size, dtype=dtype) for _ in range(3))
        q = (q.float() * math.sqrt((size + columns) / size)).to(dtype)
        rest, parts = slopes.float() * math.sqrt(size + columns), []
        for _ in range(parts_of_slope):
            parts.append(rest.to(dtype))
            rest = rest - parts[-1].float()
        slope_columns = torch.stack([*parts, *parts, torch.zeros_like(parts[0]), torch.zeros_like(parts[0])], -1)
        position = torch.arange(length)
        within = position % 256
        position_columns = torch.stack([within] * 3 + [position - within] * 3 + [0 * within] * 2, -1).to(dtype)
        wide = [
            torch.cat([q, slope_columns[None, :, None].expand(1, heads, length, columns)], -1),
            torch.cat([k, position_columns[None, None].expand(1, heads, length, columns)], -1),
            torch.cat([v, torch.zeros(1, heads, length, columns, dtype=dtype)], -1),
        ]
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION if run.on_card else SDPBackend.MATH):
            on_device = [tensor.to(run.device) for tensor in wide]
            found = F.scaled_dot_product_attention(*on_device, is_causal=True)[..., :size].cpu()
        scores = (q.double() @ k.double().transpose(-1, -2)) / math.sqrt(size + columns)
        scores += slopes[None, :, None, None] * position.double()
        scores.masked_fill_(torch.ones(length, length, dtype=torch.bool).triu(1), -math.inf)
        right = scores.softmax(-1) @ v.double()
        run.expect(str(dtype), relative_error(found, right), 2.0**-7 if dtype == torch.bfloat16 else 2.0**-10)


def chunked_entropy(run: CardRun) -> None:
    """Check launch/training/chunked_loss.py: losses and gradients over chunks of tokens against float64."""
    tokens, hidden, vocabulary, chunk = (4096, 1024, 128256, 512) if run.on_card else (64, 16, 300, 16)
    x = torch.randn(tokens, hidden, device=run.device, dtype=torch.bfloat16)
    weight = (0.05 * torch.randn(hidden, vocabulary, device=run.device)).bfloat16()
    labels = torch.randint(vocabulary, (tokens,), device=run.device)
    losses, x_grad = torch.empty(tokens, device=run.device), torch.empty_like(x)
    weight_grad = torch.zeros(hidden, vocabulary, device=run.device)
    right_losses, right_x_grad = (torch.empty_like(each, dtype=torch.float64) for each in (losses, x_grad))
    right_weight_grad = torch.zeros_like(weight_grad, dtype=torch.float64)
    for start in range(0, tokens, chunk):
        part = slice(start, start + chunk)
        chosen = torch.zeros(chunk, vocabulary, device=run.device).scatter_(1, labels[part, None], 1.0)
        logits = (x[part] @ weight).float()
        losses[part] = F.cross_entropy(logits, labels[part], reduction="none")
        gradient = (logits.softmax(-1) - chosen).bfloat16()
        x_grad[part] = gradient @ weight.T
        weight_grad += (x[part].T @ gradient).float()
        exact = x[part].double() @ weight.double()
        right_losses[part] = F.cross_entropy(exact, labels[part], reduction="none")
        right_gradient = exact.softmax(-1) - chosen
        right_x_grad[part] = right_gradient @ weight.double().T
        right_weight_grad += x[part].double().T @ right_gradient
    run.expect("mean loss", float((losses.double().mean() - right_losses.mean()).abs()), 2e-4)
    run.expect("loss of a token", float((losses.double() - right_losses).abs().max()), 0.05)  # bfloat16 logits
    run.expect("gradient of the input", relative_error(x_grad, right_x_grad), 2.0**-6)
    run.expect("gradient of the weight", relative_error(weight_grad, right_weight_grad), 2.0**-6)


def stochastic_rounding(run: CardRun) -> None:
    """Check launch/training/narrow_moments.py: the mean of rounded numbers is the number; 0 stays 0."""
    count, rounds = (1 << 20, 256) if run.on_card else (1 << 10, 64)
    values = torch.rand(count, device=run.device) + 1
    values[:16] = 0
    total = torch.zeros(count, device=run.device, dtype=torch.float64)
    for _ in range(rounds):
        noise = torch.randint(2**16, (count,), device=run.device, dtype=torch.int32)
        total += ((values.view(torch.int32) + noise) & -(2**16)).view(torch.float32).bfloat16().double()
    mean = total / rounds
    # A number lies between two neighbours 2^-7 apart: the mean of n roundings deviates by at most 2^-8 / sqrt(n).
    deviation = 2.0**-8 / math.sqrt(rounds)
    run.expect("largest deviation of one element", float((mean - values.double()).abs().max()), 6 * deviation)
    run.expect("mean of all", float((mean - values.double()).mean().abs()), 6 * deviation / math.sqrt(count))
    run.expect("zeros", float(mean[:16].abs().max()), 0.0)


PARTS = (
    card,
    rms_norm_check,
    rms_norm_memory,
    rms_norm_speed,
    rates,
    decoding,
    layer,
    head,
    alibi_columns,
    chunked_entropy,
    stochastic_rounding,
)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {part.__name__: part for part in PARTS}
    parser.add_argument("part", choices=list(parts))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("error: torch sees no card here; --device cpu tries the script with tiny sizes")
    os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")  # float32 products in float32
    torch.manual_seed(0)
    run = CardRun(args.device, args.output)
    parts[args.part](run)
    return 0 if run.ok else 1


if __name__ == "__main__":
    sys.exit(main())
