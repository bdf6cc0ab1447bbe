"""One process of benchmarks/rms_norm_cpu.py: times RMSNorm in one framework, a JSON line a question.

Argument: {"framework": "paddle" | "torch" | "none", "threads": n, "keep_freed_memory": bool}. Question: {"case": name,
"rows": n, "hidden": n, "backward": bool, "seconds": how long to measure}. Answer: the shortest time in seconds.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from launch.cpu.settings import keep_freed_memory  # noqa: E402

EPSILON = 1e-6


def shortest(call, seconds: float) -> float:
    """Return the times of all calls that fit, at least one, after a call that is not counted."""
    call()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def paddle_cases():
    """Return a function that prepares a case of Paddle's, and versions."""
    import fused_ln
    import paddle
    from paddlenlp.transformers import LlamaConfig
    from paddlenlp.transformers.llama.modeling import LlamaRMSNorm

    def composed(x, weight):
        norm = LlamaRMSNorm(LlamaConfig(hidden_size=weight.shape[0], rms_norm_eps=EPSILON, use_fused_rms_norm=False))
        norm.weight = weight
        return lambda: norm(x)

    def incubate(x, weight):
        norm = paddle.incubate.nn.functional.fused_rms_norm
        return lambda: norm(x.detach(), weight.detach(), None, EPSILON, 1)[0]

    norms = {
        "fused_ln": lambda x, weight: lambda: fused_ln.fused_rms_norm(x, weight, EPSILON)[0],
        "LlamaRMSNorm": composed,
        "incubate": incubate,
    }

    def prepare_case(case: str, rows: int, hidden: int, backward: bool):
        x, weight = paddle.randn([rows, hidden]), paddle.create_parameter([hidden], "float32")
        y_grad = paddle.randn([rows, hidden])
        x.stop_gradient = not backward
        norm = norms[case](x, weight)

        def forward():
            with paddle.no_grad():
                norm()

        return (lambda: paddle.grad(norm(), [x, weight], grad_outputs=y_grad)) if backward else forward

    return prepare_case, {"paddle": paddle.__version__}


def torch_cases():
    """Return a function that prepares a case of torch's, and versions."""
    import torch

    def prepare_case(case: str, rows: int, hidden: int, backward: bool):
        x, weight = torch.randn(rows, hidden, requires_grad=backward), torch.ones(hidden, requires_grad=backward)
        y_grad = torch.randn(rows, hidden)

        def norm():
            return torch.nn.functional.rms_norm(x, (hidden,), weight, EPSILON)

        return (lambda: torch.autograd.grad(norm(), [x, weight], grad_outputs=y_grad)) if backward else norm

    return prepare_case, {"torch": torch.__version__}


def kernel_cases(threads: int):
    """Return a function that prepares the kernels alone, on existing arrays, and memcpy of as many bytes."""
    import ctypes

    import numpy as np

    from tests.custom_ops.kernels import compile_kernels

    with tempfile.TemporaryDirectory() as folder:
        kernels = compile_kernels(Path(folder))
    kernels.set_threads(threads)
    pointer, number = ctypes.c_void_p, ctypes.c_int64

    def array(*shape: int):
        """Return a random array at an aligned address."""
        memory = np.empty(int(np.prod(shape)) + 16, np.float32)
        start = -memory.ctypes.data % 64 // 4
        values = memory[start : start + int(np.prod(shape))].reshape(shape)
        values[:] = np.random.default_rng(0).standard_normal(shape, np.float32)
        return values

    def prepare_case(case: str, rows: int, hidden: int, backward: bool):
        arrays = {name: array(rows, hidden) for name in ("x", "y", "y_grad", "x_grad")}
        arrays |= {"weight": array(hidden), "weight_grad": array(hidden), "inverse_rms": array(rows)}
        at = {name: pointer(array.ctypes.data) for name, array in arrays.items()}
        library, isa = kernels.library, kernels.library.rms_norm_best_isa()
        kept = (at["y"], at["x"], number(arrays["x"].nbytes), arrays)  # the arrays live as long as the call
        if case == "copy":
            return lambda: library.copy(*kept[:3])
        shape = (number(rows), number(hidden))
        forward = [at[name] for name in ("x", "weight", "y", "inverse_rms")]
        names = ("y_grad", "x", "weight", "inverse_rms", "x_grad", "weight_grad")
        gradients = [at[name] for name in names]

        def call():
            library.rms_norm_forward(*forward, *shape, ctypes.c_double(EPSILON), 0, 0, isa)
            if backward:
                library.rms_norm_backward(*gradients, *shape, 0, 0, isa)
            return kept

        return call

    return prepare_case, {}


def main() -> None:
    """Run the command."""
    job = json.loads(sys.argv[1])
    if job["keep_freed_memory"]:
        keep_freed_memory()
    if job["framework"] == "paddle":
        prepare_case, versions = paddle_cases()
    elif job["framework"] == "torch":
        prepare_case, versions = torch_cases()
    else:
        prepare_case, versions = kernel_cases(job["threads"])
    print(json.dumps(versions), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        seconds = question.pop("seconds")
        print(json.dumps(shortest(prepare_case(**question), seconds)), flush=True)


if __name__ == "__main__":
    main()
