"""What ranks do with the operator fused_rms_norm, for test_op.py and test_training.py."""

import numpy as np
import paddle

from tests.custom_ops.kernels import reference_backward, reference_forward

EPSILON = 1e-6
SMALL_BLOCK = 64 << 10  # bytes; malloc takes it from its heap


def where() -> str:
    import fused_ln

    return fused_ln.__file__


def facts(directory: str, pairs: list[list[str]]) -> dict:
    """Return what each function below finds; the errors of each pair of dtypes, at lengths of every kind."""
    shapes = ((37, 64), (33, 1023), (9, 65536))
    found = {each.__name__: each() for each in (upstreams_llama, layouts, corner_cases, refused, recomputed)}
    found |= {each.__name__: each() for each in (gradient_of_differences, linked_openmp, llama_loss)}
    return found | {
        "static": static(directory),
        "errors": [[errors(*shape, *pair) for shape in shapes] for pair in pairs],
    }


def op(x, weight):
    import fused_ln

    return fused_ln.fused_rms_norm(x, weight, EPSILON)[0]


def composed(x, weight):
    """As LlamaRMSNorm.forward has it."""
    inverse_rms = paddle.rsqrt(x.astype("float32").pow(2).mean(-1, keepdim=True) + EPSILON)
    normed = inverse_rms * x
    if weight.dtype != paddle.float32:
        normed = normed.astype(weight.dtype)
    return normed * weight


def leaf(array, dtype="float32"):
    tensor = paddle.to_tensor(array).astype(dtype).detach()
    tensor.stop_gradient = False
    return tensor


def as_float64(tensor) -> np.ndarray:
    return tensor.astype("float32").numpy().astype("float64")


def errors(rows: int, hidden: int, dtype: str, weight_dtype: str) -> dict[str, list[float]]:
    """Largest errors of y and the gradients of x and weight against float64, of the largest number: ours, composed."""
    numbers = np.random.default_rng(hidden)
    x, weight = leaf(numbers.normal(0, 3, (rows, hidden)), dtype), leaf(numbers.normal(1, 0.1, hidden), weight_dtype)
    y_grad = leaf(numbers.normal(size=(rows, hidden)), weight_dtype)
    exact = [as_float64(tensor) for tensor in (x, weight, y_grad)]
    right = [reference_forward(*exact[:2], EPSILON)[0], *reference_backward(exact[2], *exact[:2], EPSILON)]
    found = {}
    for name, norm in (("ours", op), ("composed", composed)):
        if name == "composed" and dtype != "float32":
            continue  # no such kernels on a CPU
        y = norm(x, weight)
        tensors = [y, *paddle.grad(y, [x, weight], grad_outputs=y_grad)]
        assert [tensor.dtype for tensor in tensors] == [weight.dtype, x.dtype, weight.dtype]
        found[name] = [
            float(np.abs(as_float64(mine) - correct).max() / np.abs(correct).max())
            for mine, correct in zip(tensors, right, strict=True)
        ]
    return found


def own_kernel_error(rows: int, hidden: int) -> float:
    """The largest error of y by Paddle's incubate.fused_rms_norm, which has no gradient on a CPU."""
    numbers = np.random.default_rng(hidden)
    x, weight = leaf(numbers.normal(0, 3, (rows, hidden))), leaf(numbers.normal(1, 0.1, hidden))
    with paddle.no_grad():
        y = paddle.incubate.nn.functional.fused_rms_norm(x, weight, None, EPSILON, 1)[0]
    right = reference_forward(as_float64(x), as_float64(weight), EPSILON)[0]
    return float(np.abs(as_float64(y) - right).max() / np.abs(right).max())


def gradient_of_differences(hidden: int = 8) -> float:
    """The largest difference between the gradient and one from finite differences of the float64 formula."""
    numbers = np.random.default_rng(0)
    x, direction = numbers.normal(size=(2, 2, hidden))
    weight = numbers.normal(size=hidden)
    tensors = [leaf(x), leaf(weight)]
    found = paddle.grad((op(*tensors) * paddle.to_tensor(direction.astype("float32"))).sum(), tensors)
    worst, step = 0.0, 1e-5
    for array, gradient in zip((x, weight), found, strict=True):
        for place in np.ndindex(array.shape):
            sums = []
            for sign in (1, -1):
                array[place] += sign * step
                sums.append((reference_forward(x, weight, EPSILON)[0] * direction).sum())
                array[place] -= sign * step
            worst = max(worst, abs((sums[0] - sums[1]) / (2 * step) - float(gradient[place])))
    return worst


def difference(some: list, others: list) -> float:
    """The largest; 0.0 is the same bits."""
    return max(float((a - b).abs().max()) for a, b in zip(some, others, strict=True))


def layouts() -> dict[str, float]:
    """Differences (0.0: the same bits) between views of every kind and contiguous copies of them, gradients too."""
    whole = paddle.randn([6, 10, 128])
    weight = leaf(np.random.default_rng(0).normal(size=64))
    found = {}
    for name, view in {
        "strided": whole[:, :, ::2],
        "transposed": whole[:, :, :64].transpose([1, 0, 2]),
        "middle": whole[1:3, 2:5, 64:],
        "one row": whole[0, 0, :64],
    }.items():
        upstream = paddle.randn([*view.shape[::-1]]).transpose(list(range(len(view.shape)))[::-1])
        results = []
        for x, grad in ((view, upstream), (paddle.to_tensor(view.numpy()), paddle.to_tensor(upstream.numpy()))):
            x.stop_gradient = False
            y = op(x, weight)
            results.append([y, *paddle.grad(y, [x, weight], grad_outputs=grad)])
        found[name] = difference(*results)
    return found


def corner_cases() -> dict:
    import fused_ln

    weight = leaf(np.ones(64))
    empty = leaf(np.zeros((0, 64)))
    y = op(empty, weight)
    grads = paddle.grad(y, [empty, weight], grad_outputs=paddle.zeros([0, 64]))
    x = leaf(np.random.default_rng(0).normal(size=(3, 64)))
    frozen_weight, frozen_x = paddle.ones([64]), x.detach()
    second = fused_ln.fused_rms_norm(x, weight)[1]
    return {
        "empty": [y.shape, grads[0].shape, float(grads[1].abs().sum())],
        "frozen weight": difference(paddle.grad(op(x, frozen_weight), x), paddle.grad(op(x, weight), x)),
        "frozen x": difference(paddle.grad(op(frozen_x, weight), weight), paddle.grad(op(x, weight), weight)),
        "inverse_rms": [second.shape, second.stop_gradient],
    }


def refused() -> list[str]:
    x, weight = paddle.ones([4, 64]), paddle.ones([64])
    found = []
    for case in (
        (paddle.ones([4, 63]), weight),
        (x, paddle.ones([1, 64])),
        (x.astype("float64"), weight),
        (x, weight.astype("bfloat16")),
        (x.astype("float16"), weight.astype("bfloat16")),
    ):
        try:
            op(*case)
        except ValueError as error:
            found.append(str(error))
    return found


def recomputed() -> float:
    """Difference of the gradients with recomputation and without."""
    from paddle.distributed.fleet.utils import recompute

    x, weight = leaf(np.random.default_rng(0).normal(size=(5, 64))), leaf(np.ones(64))
    results = []
    for call in (op, lambda *tensors: recompute(op, *tensors)):
        results.append(paddle.grad((call(x * 2, weight) ** 2).sum(), [x, weight]))
    return difference(*results)


class Normed(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([64])

    def forward(self, x):
        return op(x, self.weight) * 2


def static(directory: str) -> list[float]:
    """Differences to the layer as it is: made static, and saved and loaded."""
    layer, x = Normed(), paddle.randn([5, 64])
    specification = [paddle.static.InputSpec([None, 64], "float32")]
    made = paddle.jit.to_static(layer, input_spec=specification)
    paddle.jit.save(made, f"{directory}/layer")
    loaded = paddle.jit.load(f"{directory}/layer")
    return [float((call(x) - op(x, layer.weight) * 2).abs().max()) for call in (made, loaded)]


def linked_openmp() -> list[str]:
    """The OpenMP runtimes that fused_ln's library asks for by itself."""
    import subprocess
    from pathlib import Path

    library = next(Path(where()).parent.glob("_ops*.so"))
    needed = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    return [line.split("[")[1].rstrip("]") for line in needed.splitlines() if "omp" in line]


def llama_loss() -> float:
    """Of a LLaMA with use_fused_rms_norm."""
    from launch.upstream import correct

    correct(["llama_fused_rms_norm_flag"])
    return _llama_loss()


def upstreams_llama() -> str:
    """What it fails with where its configuration is not corrected."""
    try:
        return f"no failure: {_llama_loss()}"
    except AttributeError as error:
        return str(error)


def _llama_loss() -> float:
    from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, use_fused_rms_norm=True, **sizes))
    ids = paddle.arange(32).unsqueeze(0)
    return float(model(ids, labels=ids)[0])


def beside_cpu_fast() -> dict:
    """The fast operators' line, and loss and gradients of a model with all compiled ones, against stock."""
    from launch.cpu.kernels import apply
    from launch.devices.cpu_operators import compiled_operators
    from launch.upstream import correct
    from tests.cpu.small_model import batch, model

    correct(["llama_fused_rms_norm_flag"])
    ids, made = batch(0), [model(), model(use_fused_rms_norm=True)]
    line = apply(made[1], compiled_operators())
    losses = []
    for one in made:
        losses.append(one(ids[:, :-1], labels=ids[:, 1:])[0])
        losses[-1].backward()
    gradients = [dict((name, weight.grad) for name, weight in one.named_parameters()) for one in made]
    relative = [(gradients[1][name] - stock).norm() / stock.norm() for name, stock in gradients[0].items()]
    return {"line": line, "loss": float((losses[1] - losses[0]).abs()), "gradient": float(max(relative))}


def page_faults(rows: int, hidden: int, held: int = 0) -> list[int]:
    """Of this process, in each of some forward passes whose result is fresh memory.

    held: bytes that malloc holds free before the first of them, and that are in use before the second.
    """
    import ctypes
    import resource

    libc = ctypes.CDLL("libc.so.6")
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    x, weight = paddle.ones([rows, hidden]), paddle.ones([hidden])
    pieces = [libc.malloc(SMALL_BLOCK) for _ in range(held // SMALL_BLOCK)]
    libc.malloc(SMALL_BLOCK)  # behind them: what is freed stays between blocks in use
    for piece in pieces:
        libc.free(piece)
    op(x, weight)
    for _ in pieces:
        libc.malloc(SMALL_BLOCK)
    counts = []
    for _ in range(30):  # malloc may try some free places of its heap before it comes back to one
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        op(x, weight)  # dropped at once: malloc gives a block of this size back to the system
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return counts
