"""Checks of one card's arithmetic: environment, RMSNorm, attention, norms, quantized products. No Paddle at import."""

import os
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from custom_ops.fused_rms_norm.nvcc import Nvcc, find_nvcc
from launch.certify.bench import (
    MATERIALS,
    ROOT,
    Bench,
    CheckFailed,
    Dtype,
    capability,
    half_dtypes,
    known_card,
    seconds_of,
    start_paddle,
)
from launch.devices.cards import visible_devices
from launch.devices.paddle_flags import CARD_FLAGS
from launch.families.family import Family
from launch.families.named_configs import load_config
from launch.families.parameters import ALIBI_COLUMNS
from launch.families.registry import FAMILIES, family_of_config
from launch.plan.hardware import Card

PRETENDED_BUILD = "12.6"  # CUDA's version of Paddle
SHOWN_EVERYWHERE = ("Python", "packages")

# ---- environment


@pytest.mark.card(
    seconds=20,
    pretended=2,
    limit=120,
    quick=True,
    alone=True,
    silent=True,
    expected="the pinned packages, a driver that runs this Paddle, free cards without memory errors, right matrix "
    "products",
    at_fault="nothing below can be trusted before this is mended: the fix stands in each row",
)
def test_environment(bench: Bench) -> None:
    """The checks of make doctor and of a recipe's start; then matrix products in each dtype, their errors and rates."""
    from launch.environment.doctor_checks import (
        check_clashes,
        check_lock,
        check_python,
        check_shared_memory,
        installed_packages,
    )
    from launch.preflight.gpus import check_cards

    installed = installed_packages()
    findings = [check_python(), check_lock(installed), *check_clashes(installed), check_shared_memory()]
    if not bench.pretend:
        findings += check_cards(tuple(visible_devices()[: bench.cards]))
    for finding in findings:
        found = finding.found + (f"; fix: {finding.fix}" if finding.fix else "")
        bench.row(finding.subject, "nothing to mend", found, finding.ok, finding.subject in SHOWN_EVERYWHERE)
    start_paddle(bench)
    for dtype in ("float32", *half_dtypes(bench)):
        _matrix_product(bench, dtype)
    rate = _copied_bytes_a_second(2**20 if bench.pretend else 2**28) / 1e9
    _rate(bench, "rate of a copy on the card", "GB/s", rate, lambda card: card.memory_bandwidth / 1e9)


def _matrix_product(bench: Bench, dtype: Dtype) -> None:
    """The error against float64, and the rate against the card's data sheet, which is never quite reached."""
    import numpy as np
    import paddle

    left, right = np.random.default_rng(0).standard_normal((2, 256, 256), "float32")
    factors = [paddle.to_tensor(array).astype(_computed(bench, dtype)) for array in (left, right)]
    error = _relative_error(paddle.matmul(*factors).astype("float32").numpy(), left.astype("float64") @ right)
    # The inputs are rounded once: half a unit of the last place each, and float32 on cards may be TF32, of 11 bits.
    allowed = {"float32": 2.0**-10, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    bench.row(f"matrix product in {dtype}", f"off by {allowed:.1e} at most", f"off by {error:.1e}", error <= allowed)
    if bench.pretend:
        return
    size = 8192
    square = paddle.ones([size, size], dtype=dtype)
    seconds = seconds_of(lambda: paddle.matmul(square, square))
    rate = 2 * size**3 / seconds / 1e12
    _rate(bench, f"rate of matrix products in {dtype}", "TFLOP/s", rate, lambda card: card.flops(dtype) / 1e12)


def _copied_bytes_a_second(elements: int = 2**28) -> float:
    """Bytes read and written by a copy of float32 on the device."""
    import paddle

    source = paddle.ones([elements], dtype="float32")
    return 2 * 4 * elements / seconds_of(lambda: paddle.assign(source))


def _rate(bench: Bench, what: str, unit: str, measured: float, peak_of: Callable[[Card], float]) -> None:
    """A measured rate beside the datasheet's, which fails where it is far below."""
    card = known_card()
    if card is None:
        bench.row(what, "none known", f"{measured:,.0f} {unit}", None)
        return
    peak = peak_of(card)
    found = f"{measured:,.0f} {unit}, {measured / peak:.0%} of the datasheet"
    bench.row(
        what,
        f"a third of {peak:,.0f} {unit} or more",
        found,
        measured >= peak / 3,
        unit=unit,
        planned=peak,
        measured=measured,
    )


# ---- views


@pytest.mark.card(
    seconds=10,
    pretended=2,
    limit=120,
    quick=True,
    silent=True,
    expected="operators on slices and transposes give what NumPy gives, and their gradients are no views of each other",
    at_fault="no recipe can be trusted on this card: set FLAGS_use_stride_compute_kernel=0 and report it",
)
def test_views(bench: Bench) -> None:
    """Element-wise operators, sums and products of parts of tensors, which Paddle's strided kernels read in place."""
    for name, value in CARD_FLAGS.items():
        bench.row(name, value, os.environ.get(name, value), os.environ.get(name, value) == value, True)
    start_paddle(bench)
    import numpy as np
    import paddle

    draw = np.random.default_rng(0).standard_normal((6, 10, 14)).astype("float32")
    views = {
        "a slice": lambda x: x[1:5, ::3, 2:9],
        "a transpose": lambda x: x.transpose([2, 0, 1]),
        "a slice of a transpose": lambda x: x.transpose([1, 2, 0])[3:, 1::2],
    }
    operators = {
        "!=": lambda x, y: x != y,
        "unary minus": lambda x, y: -x,
        "*": lambda x, y: x * y,
        "sum over the first axis": lambda x, y: x.sum(0),
        "sum": lambda x, y: x.sum(),
        "matrix product": lambda x, y: x @ y.swapaxes(-1, -2),
    }
    for what, view in views.items():
        for name, operator in operators.items():
            for dtype in ("float32", *(() if bench.pretend else half_dtypes(bench))):
                tensor = paddle.to_tensor(draw).astype(dtype)
                array = tensor.astype("float32").numpy()
                found = operator(view(tensor), view(tensor * 2)).astype("float32").numpy()
                right = operator(view(array), view(array * 2)).astype("float32")
                error = float(np.abs(found - right).max() / np.abs(right).max()) if right.any() else float(found.any())
                allowed = {"float32": 2.0**-10, "float16": 2.0**-9, "bfloat16": 2.0**-6}[dtype]
                good = error <= allowed
                bench.row(f"{name} of {what} in {dtype}", "as in NumPy", f"off by {error:.1e}", good)
    left, right = (paddle.to_tensor(draw, stop_gradient=False) for _ in range(2))
    (left.transpose([1, 0, 2]) + right.transpose([1, 0, 2])).sum().backward()
    assert left.grad is not None and right.grad is not None
    with paddle.no_grad():
        left.grad.add_(paddle.ones_like(left.grad))
    alone = float((right.grad - 1).abs().max()) == 0
    bench.row("gradients of a sum", "apart in memory", "apart" if alone else "one changes with the other", alone)


# ---- fused RMSNorm

SOURCE = ROOT / "custom_ops" / "fused_rms_norm"
HIDDEN, SPEED_ROWS = 4096, 8192  # of LLaMA-7B; a micro batch of 4 x 2048 tokens


@pytest.mark.card(
    seconds=90,
    pretended=2,
    limit=400,
    quick=True,
    expected="the CUDA kernels pass their own check; each operator gives in each dtype what float64 gives",
    at_fault="recipes with --use_fused_rms_norm auto find it at their start and take the next operator, slower and "
    "with more memory; --use_fused_rms_norm required is refused",
)
def test_rms_norm(bench: Bench) -> None:
    """Each operator that --use_fused_rms_norm auto tries, in each dtype."""
    _own_check(bench, find_nvcc())
    start_paddle(bench)
    from launch.switches.kernel_checks import rms_norm_fault

    copy = None if bench.pretend else _copied_bytes_a_second()
    for name, compute in _operators(bench).items():
        for dtype in ("float32",) if bench.pretend else ("float32", *half_dtypes(bench)):
            wrong = rms_norm_fault(name, compute, HIDDEN, (dtype, dtype))
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
    lines = (done.stdout + done.stderr).strip().splitlines()
    bench.row(what, expected, f"exit code {done.returncode}: {lines[-1] if lines else ''}", done.returncode == 0)


def _operators(bench: Bench) -> dict[str, Callable]:
    """The operators that can be used here, in the order in which a run tries them; a row for one that cannot."""
    from launch.devices.fused_ln import PADDLES_OWN, find_build
    from launch.switches import FUSED_RMS_NORM
    from launch.switches.kernel_checks import fused_ln_rms_norm
    from launch.switches.switch import SwitchCase

    operators: dict[str, Callable] = {}
    case = SwitchCase(FAMILIES["llama"], None if bench.pretend else capability(bench), fused_ln=find_build())
    if reason := FUSED_RMS_NORM.obstacle(case):
        bench.row("fused_ln", "built for this card", reason, None)
    else:
        operators["fused_ln"] = fused_ln_rms_norm
    if not bench.pretend:
        from launch.switches.kernel_checks import paddle_rms_norm

        operators[PADDLES_OWN] = paddle_rms_norm
    return operators | {"the framework's own": _paddlenlp_rms_norm}


def _paddlenlp_rms_norm(x, weight, epsilon: float) -> tuple:
    """LlamaRMSNorm's separate operators."""
    from paddlenlp.transformers.llama.modeling import LlamaRMSNorm

    config = SimpleNamespace(use_fused_rms_norm=False)
    layer: Any = SimpleNamespace(weight=weight, variance_epsilon=epsilon, config=config)
    return (LlamaRMSNorm.forward(layer, x),)


def _speed(bench: Bench, name: str, compute: Callable, dtype: Dtype, copy: float) -> None:
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
        f"{direction} {rate / 1e9:,.0f} GB/s ({rate / copy:.0%} of a copy)"
        for direction, rate in (("forward", forward), ("backward", backward))
    )
    what = f"{name} in {dtype}: speed"
    bench.row(
        what, "", found, None, forward_gb_a_second=forward / 1e9, backward_gb_a_second=backward / 1e9, copy=copy / 1e9
    )


# ---- attention

# (heads of queries, of keys and values, elements in a head)
HEADS = [(8, 8, 64), (8, 8, 80), (8, 8, 96), (8, 8, 128), (8, 2, 128), (4, 4, 192), (4, 4, 256)]
MASKS = ("causal", "version 3", "dense", "FlashMask")
WITH_ALIBI = "baichuan-rehearsal"
PREFIX = 64  # tokens, as the recipe has them


@pytest.mark.card(
    seconds=40,
    pretended=3,
    limit=300,
    quick=True,
    expected="as exact attention for each mask, head size and dtype that the table of docs/flash-attention.md allows",
    at_fault="recipes with --use_flash_attention auto find it at their start and use exact attention, slower and "
    "with more memory; --use_flash_attention required is refused",
)
def test_flash_attention(bench: Bench) -> None:
    """Each case that the table allows is compared with exact attention, forward and backward."""
    start_paddle(bench)
    if not bench.pretend:
        from launch.switches.kernel_checks import kernel_missing

        missing = kernel_missing(capability(bench))
        bench.row("kernel", "in this build of Paddle", missing or "in this build of Paddle", not missing)
    family = family_of_config(load_config(MATERIALS))
    for dtype in half_dtypes(bench):
        for heads in HEADS[::3] if bench.pretend else HEADS:
            for mask in MASKS:
                _attention(bench, family, dtype, heads, mask, 0)
        for mask in MASKS:
            _attention(bench, family_of_config(load_config(WITH_ALIBI)), dtype, (5, 5, 128), mask, 0)


@pytest.mark.card(
    seconds=50,
    pretended=7,
    limit=300,
    expected="as exact attention where keys are more than queries, of even and odd number, padded and not",
    at_fault="prefix-llama7b finds it at its start and uses exact attention, slower and with more memory",
)
def test_prefix_attention(bench: Bench) -> None:
    """More keys than queries, of even and odd number, padded and not, as each family that has both calls it."""
    start_paddle(bench)
    for family in FAMILIES.values():
        if {"flash_attention", "prefix"} & family.lacking.keys():
            continue
        for dtype in half_dtypes(bench):
            for mask in ("causal", "dense"):
                _attention(bench, family, dtype, (8, 8, 128), mask, PREFIX)


def _attention(bench: Bench, family: Family, dtype: Dtype, heads: tuple[int, int, int], mask: str, prefix: int) -> None:
    """One row: the start-up check of a run (launch/switches/kernel_checks.py) with these shapes."""
    from launch.switches import FLASH_ATTENTION, FLASH_ATTENTION_3, FLASH_MASK
    from launch.switches.kernel_checks import (
        Heads,
        attention_fault,
        flash_attention_of,
        packed_shapes,
        shapes,
        version_3_missing,
    )
    from launch.switches.switch import SwitchCase
    from launch.upstream.llama_flash_masks import use_version_3

    packed = mask == "FlashMask"
    earlier = f", a prefix of {prefix}" if prefix else ""
    bias = ", ALiBi" if family.alibi else ""
    what = f"{family.model_type}{bias}, {dtype}, {mask}, {heads[0]} heads of {heads[2]}, {heads[1]} of keys{earlier}"
    size = heads[2] + (ALIBI_COLUMNS if family.alibi else 0)
    case = SwitchCase(family, capability(bench), _build(bench), dtype=dtype, head_size=size, mask=mask)
    own = {"FlashMask": FLASH_MASK, "version 3": FLASH_ATTENTION_3}.get(mask)
    reason = FLASH_ATTENTION.obstacle(case) or (own.obstacle(case) if own else "")
    if own and bench.pretend:
        reason = f"a CPU has no {mask}"
    elif not reason and own is FLASH_ATTENTION_3:
        reason = version_3_missing()
    if reason:
        bench.row(what, "not used here", reason, None)
        return
    tried = packed_shapes() if packed else shapes(mask == "dense", prefix)
    attend = flash_attention_of(family)
    attend = _in_float32(attend) if bench.pretend else attend
    use_version_3(own is FLASH_ATTENTION_3)
    wrong = attention_fault(attend, Heads(*heads, family.alibi), dtype, tried)
    bench.row(what, "as exact attention", wrong or "as exact attention", not wrong)


def _in_float32(attend: Callable) -> Callable:
    """For a pretended run: a CPU has no attention in half precision."""

    def attend_in_float32(query, key, value, mask):
        wide = [None if tensor is None else tensor.astype("float32") for tensor in (query, key, value, mask)]
        return attend(*wide).astype(query.dtype)

    return attend_in_float32


# ---- fused rotary embedding and SwiGLU

ROPE_HEADS = [(8, 8, 64), (8, 8, 128), (8, 2, 128), (3, 1, 96), (4, 4, 256)]


@pytest.mark.card(
    seconds=15,
    pretended=2,
    limit=200,
    quick=True,
    silent=True,
    expected="as the plain formulas, forward and backward, in each dtype",
    at_fault="SwiGLU: every LLaMA and Qwen2 trains wrong in the row's dtype; rotary embedding: recipes find it at "
    "their start and take separate operators, slower and with more memory; --use_fused_rope required is "
    "refused",
)
def test_fused_kernels(bench: Bench) -> None:
    """As the start of a run tries them, in each dtype; SwiGLU, which LLaMA and Qwen2 always use, only here."""
    start_paddle(bench)
    from launch.switches.kernel_checks import Heads
    from launch.switches.kernel_trials import rope_fault, swiglu_fault

    for dtype in ("float32",) if bench.pretend else ("float32", *half_dtypes(bench)):
        wrong = swiglu_fault(dtype)
        bench.row(f"SwiGLU in {dtype}", "as silu(x) y", wrong or "as silu(x) y", not wrong)
        for heads in ROPE_HEADS:
            what = f"rotary embedding in {dtype}, {heads[0]} heads of {heads[2]}, {heads[1]} of keys"
            if bench.pretend:
                bench.row(what, "as separate operators", "a CPU has no kernel for it", None)
                continue
            wrong = rope_fault(Heads(*heads), dtype)
            bench.row(what, "as separate operators", wrong or "as separate operators", not wrong)


# ---- norms of gradients

SMALL = 1e-4  # its square, 1e-8, is 0 in float16, whose smallest value is 6e-8


@pytest.mark.card(
    seconds=20,
    pretended=2,
    limit=200,
    silent=True,
    expected="the norm in float32, and gradients clipped by it",
    at_fault="--max_grad_norm does not clip as it should in half precision, in all recipes: do not train in the "
    "row's dtype before this is mended",
)
def test_gradient_norms(bench: Bench) -> None:
    """The global norm of many small gradients, and the gradients after clipping by it."""
    start_paddle(bench)
    import paddle

    from launch.training.optimizer import ClipByGlobalNorm, GradNorm

    grad_norm = GradNorm()
    elements = 2**16 if bench.pretend else 2**24
    for dtype in half_dtypes(bench):
        gradient = paddle.full([elements], SMALL).astype(dtype).astype(_computed(bench, dtype))
        value = float(gradient[0].astype("float32"))  # as the dtype has it
        norm = value * elements**0.5
        parameter = paddle.create_parameter([elements], dtype="float32")
        [(_, clipped)] = ClipByGlobalNorm(norm / 4, grad_norm)([(parameter, gradient)])
        off = abs(grad_norm.value / norm - 1)
        what = f"norm of {elements:,} entries of {SMALL:g} in {dtype}"
        bench.row(what, f"{norm:.5g}, off by 0.1% at most", f"{grad_norm.value:.5g}", off <= 1e-3)
        left = float(clipped[-1].astype("float32")) / value
        expected = "a quarter, off by 1% at most"
        bench.row(f"what clipping leaves in {dtype}", expected, f"{left:.4f}", abs(left - 0.25) <= 2.5e-3)


# ---- quantized bases

FORMATS = ("weight_only_int8", "weight_only_int4", "llm.int8", "nf4", "fp4")
ROWS = (1, 4, 512)  # of inputs: a token, a small batch, a training batch
# Relative to the product with the dequantized weight: rounding of half precision; llm.int8 also rounds its inputs.
PRODUCT_TOLERANCE = {"llm.int8": 0.02}
HALF_PRODUCT_TOLERANCE = 0.01


@pytest.mark.card(
    seconds=60,
    pretended=4,
    limit=400,
    silent=True,
    expected="products with what the codes stand for, of 1, 4 and 512 rows",
    at_fault="qlora-llama7b and qlora-baichuan13b (nf4), lora-chatglm6b-int8 (llm.int8), and every "
    "--weight_quantize_algo of the row, compute something else than their weights",
)
def test_quantized(bench: Bench) -> None:
    """Products with quantized weights, by Paddle's kernels or the reference path, and their time."""
    start_paddle(bench)
    for dtype in ("float32",) if bench.pretend else half_dtypes(bench):
        for algo in FORMATS:
            for double in (False, True) if algo == "nf4" else (False,):
                _quantized_products(bench, algo, dtype, double)
            if algo != "llm.int8":
                _quantized_head(bench, algo, dtype)


def _quantized_products(bench: Bench, algo: str, dtype: Dtype, double: bool) -> None:
    import paddle

    from launch.adapters import cuda_kernels
    from launch.adapters.quantization import Format, dequantize, quantize
    from launch.adapters.quantized_layers import linear

    size = 256 if bench.pretend else 4096
    paddle.seed(0)
    weight = (paddle.randn([size, size]) * 0.02).astype(dtype)
    packed = quantize(weight, Format(algo, double_quant=double))
    dense = dequantize(packed).astype("float32")
    name = f"{algo}{', scales in 8 bits,' if double else ''} in {dtype}"
    why = "" if packed.by_kernel else cuda_kernels.why_not(algo, packed.shape, weight.dtype)
    kernel = "Paddle's kernel" if packed.by_kernel else f"the reference path: {why}"
    bench.row(f"{name}: computed by", "", kernel, None)
    tolerance = PRODUCT_TOLERANCE.get(algo, HALF_PRODUCT_TOLERANCE)
    for rows in ROWS:
        inputs = paddle.randn([rows, size]).clip(-5, 5).astype(dtype)
        expected = paddle.matmul(inputs.astype("float32"), dense)
        error = _relative_error(linear(inputs, packed).astype("float32").numpy(), expected.numpy())
        seconds = seconds_of(lambda rows=inputs: linear(rows, packed))
        stock = seconds_of(lambda rows=inputs: paddle.matmul(rows, weight))
        found = f"off by {error:.1e}, {seconds / stock:.1f} times the time of a dense product"
        what, expected_error = f"{name}, {rows} rows", f"off by {tolerance:.0e} at most"
        bench.row(what, expected_error, found, error <= tolerance, seconds=seconds, dense_seconds=stock)


def _quantized_head(bench: Bench, algo: str, dtype: Dtype) -> None:
    """An output layer, of three parts on a card: logits, and the gradient of the inputs, summed over the parts."""
    import paddle

    from launch.adapters.quantization import Format, dequantize
    from launch.adapters.quantized_layers import PackedColumns
    from launch.tape.quantized import columns_of_part

    hidden = 256 if bench.pretend else 4096
    columns = 128 if bench.pretend else columns_of_part(hidden)
    paddle.seed(0)
    weight = (paddle.randn([hidden, 2 * columns + 64]) * 0.02).astype(dtype)
    packed = PackedColumns.of(weight, Format(algo))
    dense = paddle.concat([dequantize(part) for part in packed.parts], axis=1).astype("float32")
    for what, function, width, transposed in (
        ("logits", packed.logits, hidden, False),
        ("gradient of its inputs", packed.hidden, dense.shape[1], True),
    ):
        inputs = paddle.randn([64, width]).clip(-5, 5).astype(dtype)
        expected = paddle.matmul(inputs.astype("float32"), dense, transpose_y=transposed)
        error = _relative_error(function(inputs).astype("float32").numpy(), expected.numpy())
        expected_error = f"off by {HALF_PRODUCT_TOLERANCE:.0e} at most"
        name = f"output layer of {len(packed.parts)} parts in {algo} and {dtype}: {what}"
        bench.row(name, expected_error, f"off by {error:.1e}", error <= HALF_PRODUCT_TOLERANCE)


def _build(bench: Bench) -> str | None:
    from launch.devices.cuda import paddle_build

    return PRETENDED_BUILD if bench.pretend else paddle_build()


def _computed(bench: Bench, dtype: Dtype) -> Dtype:
    """A CPU has few operators in half precision: a pretended run computes in float32."""
    return "float32" if bench.pretend else dtype


def _relative_error(found, expected) -> float:
    import numpy as np

    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
