"""Fused RMSNorm on the card: the kernels' own check, each way to compute it against float64, and speeds beside a copy.

No Paddle at import.
"""

import subprocess
from collections.abc import Callable
from types import SimpleNamespace

from custom_ops.fused_rms_norm.nvcc import Nvcc, find_nvcc
from launch.certify.bench import ROOT, Bench, CheckFailed
from launch.certify.card_checks import capability, half_dtypes, seconds_of, start_paddle

SOURCE = ROOT / "custom_ops" / "fused_rms_norm"
HIDDEN, SPEED_ROWS = 4096, 8192  # of LLaMA-7B; a micro batch of 4 x 2048 tokens


def rms_norm(bench: Bench) -> None:
    """What a recipe's --use_fused_rms_norm auto tries, each way, in each dtype."""
    _own_check(bench, find_nvcc())
    start_paddle(bench)
    from launch.training.rms_norm_check import disagreement

    copy = None if bench.pretend else _copied_bytes_a_second()
    for name, compute in _ways(bench).items():
        for dtype in ("float32",) if bench.pretend else ("float32", *half_dtypes(bench)):
            wrong = disagreement(name, compute, HIDDEN, (dtype, dtype))
            bench.row(f"{name} in {dtype}", "as in float64", wrong or "as in float64", not wrong)
            if copy:
                _speed(bench, name, compute, dtype, copy)


def _own_check(bench: Bench, nvcc: Nvcc | None) -> None:
    """custom_ops/fused_rms_norm/harness/check.cu, compiled here for this card and run: all shapes and dtypes."""
    what, expected = "the CUDA kernels' own check", "exit code 0"
    if nvcc is None:
        bench.row(what, expected, "no nvcc here: the module fused_ln cannot be built for cards", None)
        return
    if bench.pretend:
        bench.row(what, expected, f"nvcc {nvcc.version} is here, a card is not", None)
        return
    program = bench.directory / "check"
    sources = [str(SOURCE / "harness" / "check.cu"), str(SOURCE / "csrc" / "rms_norm_cuda.cu")]
    command = [str(nvcc.path), "-O3", "-std=c++17", "-arch=native", *sources, "-o", str(program)]
    compiled = subprocess.run(command, capture_output=True, text=True)
    if compiled.returncode:
        bench.row(what, "compiles", compiled.stderr.strip()[-300:], False)
        return
    done = subprocess.run([program], capture_output=True, text=True)
    said = (done.stdout + done.stderr).strip().splitlines()
    bench.row(what, expected, f"exit code {done.returncode}: {said[-1] if said else ''}", done.returncode == 0)


def _ways(bench: Bench) -> dict[str, Callable]:
    """The operators that can be used here, in the order in which a run tries them; a row for one that cannot."""
    from launch.devices.fused_ln import PADDLES_OWN, find_build, obstacle
    from launch.training.rms_norm_check import of_fused_ln

    ways = {}
    if reason := obstacle(find_build(), "llama", None if bench.pretend else capability(bench)):
        bench.row("fused_ln", "built for this card", reason, None)
    else:
        ways["fused_ln"] = of_fused_ln
    if not bench.pretend:
        from launch.training.rms_norm_check import fused_rms_norm

        ways[PADDLES_OWN] = fused_rms_norm
    return ways | {"the framework's own": _of_paddlenlp}


def _of_paddlenlp(x, weight, epsilon: float) -> tuple:
    """LlamaRMSNorm's separate operators."""
    from paddlenlp.transformers.llama.modeling import LlamaRMSNorm

    config = SimpleNamespace(use_fused_rms_norm=False)
    layer = SimpleNamespace(weight=weight, variance_epsilon=epsilon, config=config)
    return (LlamaRMSNorm.forward(layer, x),)


def _copied_bytes_a_second() -> float:
    import paddle

    source = paddle.ones([2**28], dtype="float32")
    return 2 * 4 * 2**28 / seconds_of(lambda: paddle.assign(source))


def _speed(bench: Bench, name: str, compute: Callable, dtype: str, copy: float) -> None:
    """Bytes that must be moved a second, forward (x, y) and backward (x, the gradients of y and x)."""
    import paddle

    x, gradient = (paddle.randn([SPEED_ROWS, HIDDEN]).astype(dtype) for _ in range(2))
    weight = paddle.ones([HIDDEN], dtype=dtype)
    x.stop_gradient = weight.stop_gradient = False
    y = compute(x, weight, 1e-6)[0]
    if y.shape != x.shape:
        raise CheckFailed(f"{name} gives {y.shape} for {x.shape}")
    size = SPEED_ROWS * HIDDEN * x.element_size()
    forward = 2 * size / seconds_of(lambda: compute(x, weight, 1e-6)[0])
    backward = 3 * size / seconds_of(lambda: paddle.grad(y, [x, weight], grad_outputs=gradient, retain_graph=True)[0])
    found = ", ".join(
        f"{way} {rate / 1e9:,.0f} GB/s ({rate / copy:.0%} of a copy)"
        for way, rate in (("forward", forward), ("backward", backward))
    )
    numbers = {"forward_gb_a_second": forward / 1e9, "backward_gb_a_second": backward / 1e9, "copy": copy / 1e9}
    bench.row(f"{name} in {dtype}: speed", "", found, None, **numbers)
