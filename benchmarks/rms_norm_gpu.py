"""RMSNorm on an NVIDIA card: our kernels, torch's rms_norm, torch.compile and Liger's Triton kernel.

    python benchmarks/rms_norm_gpu.py [--hidden 1024 ... 65536] [--rows 2048 8192 32768] [--dtypes bfloat16 float32]
        [--output benchmarks/results/rms_norm_gpu.json]

Needs torch for CUDA and nvcc, no Paddle; liger-kernel is measured where it is installed. First every kernel's numbers
are compared with float64. Then for each shape: microseconds (p20/p50/p80, CUDA events, the L2 cache emptied before each
call), GB/s of the bytes that must be moved (forward: x, y; backward: x, the gradient of y, that of x), and what share
that is of this card's device-to-device copy, measured in the same run.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.cpp_extension import load

SOURCE = Path(__file__).resolve().parent.parent / "custom_ops" / "fused_rms_norm"
EPSILON = 1e-6
TOLERANCE = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 1e-5}
CACHE_BYTES = 256 << 20  # more than any card's L2
SLEEP_CYCLES = 2_000_000  # of the card, about 1 ms: longer than a slow host takes to queue a call


def build():
    """Build our kernels as a torch extension, for this card."""
    major, minor = torch.cuda.get_device_capability()
    os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"
    sources = [SOURCE / "harness" / "torch_extension.cpp", SOURCE / "csrc" / "rms_norm_cuda.cu"]
    flags = ["-O3", "-std=c++17", "-Xptxas", "-v"]
    return load("rms_norm", [str(source) for source in sources], extra_cuda_cflags=flags, verbose=True)


def ways(kernels) -> dict:
    """Name -> function of (x, weight) that gives y, differentiable."""

    class Ours(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            y, inverse_rms = kernels.forward(x, weight, EPSILON)
            ctx.save_for_backward(x, weight, inverse_rms)
            return y

        @staticmethod
        def backward(ctx, y_grad):
            return tuple(kernels.backward(y_grad, *ctx.saved_tensors))

    def plain(x, weight):
        return F.rms_norm(x, (x.shape[-1],), weight, EPSILON)

    def composed(x, weight):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype) * weight

    found = {"ours": Ours.apply, "torch": plain, "torch.compile": torch.compile(composed, dynamic=False)}
    try:
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    except ImportError:
        print("liger-kernel is not installed: not measured")
        return found
    found["Liger"] = lambda x, weight: LigerRMSNormFunction.apply(x, weight, EPSILON, 0.0, "llama", False)
    return found


def inputs(rows: int, hidden: int, dtype: str):
    """Return random inputs and a gradient."""
    torch.manual_seed(0)
    x, y_grad = torch.randn(2, rows, hidden, device="cuda").to(getattr(torch, dtype))
    weight = (1 + 0.1 * torch.randn(hidden, device="cuda")).to(getattr(torch, dtype))
    return x.requires_grad_(), weight.requires_grad_(), y_grad


def errors(norm, rows: int, hidden: int, dtype: str) -> list[float]:
    """Return the largest errors of y and the gradients of x and weight against float64, as shares of the largest."""
    x, weight, y_grad = inputs(rows, hidden, dtype)
    exact = [tensor.detach().double().requires_grad_() for tensor in (x, weight)]
    right = F.rms_norm(exact[0], (hidden,), exact[1], EPSILON)
    expected = [right, *torch.autograd.grad(right, exact, y_grad.double())]
    y = norm(x, weight)
    found = [y, *torch.autograd.grad(y, [x, weight], y_grad)]
    return [float((a.double() - b).abs().max() / b.abs().max()) for a, b in zip(found, expected, strict=True)]


def quantiles(call, calls: int = 60) -> list[float]:
    """Return the microseconds of a call: p20, p50, p80."""
    cache = torch.empty(CACHE_BYTES, dtype=torch.int8, device="cuda")
    for _ in range(10):
        call()
    events = []
    for _ in range(calls):
        cache.zero_()
        torch.cuda._sleep(SLEEP_CYCLES)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        events.append((start, end))
    torch.cuda.synchronize()
    times = sorted(1e3 * start.elapsed_time(end) for start, end in events)
    return [times[int(calls * share)] for share in (0.2, 0.5, 0.8)]


def copy_rate() -> float:
    """Return the GB/s of a device-to-device copy, bytes read and written."""
    source = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / quantiles(lambda: target.copy_(source))[1] / 1e3


def measure(norm, rows: int, hidden: int, dtype: str, copy: float) -> dict:
    """Measure one cell."""
    x, weight, y_grad = inputs(rows, hidden, dtype)
    size = x.numel() * x.element_size()

    def forward():
        with torch.no_grad():
            norm(x, weight)

    y = norm(x, weight)
    found = {}
    for name, call, moved in (
        ("forward", forward, 2 * size),
        ("backward", lambda: torch.autograd.grad(y, [x, weight], y_grad, retain_graph=True), 3 * size),
    ):
        microseconds = quantiles(call)
        rate = moved / microseconds[1] / 1e3
        found[name] = {"us": microseconds, "GB/s": rate, "of copy": rate / copy}
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = [1024, 2048, 4096, 8192, 16384, 32768, 65536]
    parser.add_argument("--hidden", type=int, nargs="+", default=sizes)
    parser.add_argument("--rows", type=int, nargs="+", default=[2048, 8192, 32768])
    parser.add_argument("--dtypes", nargs="+", choices=list(TOLERANCE), default=["bfloat16", "float32"])
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("error: torch sees no card here")
    norms = ways(build())
    for hidden in (100, 1023, *args.hidden):
        for dtype in TOLERANCE:
            off = errors(norms["ours"], 333, hidden, dtype)
            if not max(off) <= TOLERANCE[dtype]:
                sys.exit(f"error: [333, {hidden}] {dtype}: off by {off}, allowed {TOLERANCE[dtype]}")
    copy = copy_rate()
    device = torch.cuda.get_device_properties(0)
    versions = {"torch": torch.__version__, "CUDA": torch.version.cuda}
    report = {"device": device.name, "versions": versions, "copy GB/s": copy, "results": []}
    print(f"{device.name}, {versions}, copy {copy:.0f} GB/s")
    for dtype in args.dtypes:
        for hidden in args.hidden:
            for rows in args.rows:
                if rows * hidden > 2**31:
                    continue
                torch.compiler.reset()
                for name, norm in norms.items():
                    found = measure(norm, rows, hidden, dtype, copy)
                    report["results"].append({"way": name, "dtype": dtype, "rows": rows, "hidden": hidden, **found})
                    cells = [
                        f"{way} {'/'.join(f'{value:.1f}' for value in cell['us'])} us, {cell['GB/s']:.0f} GB/s,"
                        f" {cell['of copy']:.0%} of copy"
                        for way, cell in found.items()
                    ]
                    print(f"{dtype} [{rows}, {hidden}] {name}: {'; '.join(cells)}", flush=True)
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
