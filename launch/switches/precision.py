"""The switch of precision: which half precision a card computes in, bfloat16 or float16.

It is no Switch: an older card computes in float16 in place of bfloat16, which is tried by no trial.
"""

from typing import Any

from launch.devices.cpu_operators import bfloat16_obstacle
from launch.errors import UserError

# Tensor cores compute in bfloat16 from Ampere on (NVIDIA A100 whitepaper); PaddleNLP's help of --bf16 says so, too.
BF16_CAPABILITY = (8, 0)


# --precision as (--bf16, --fp16)
PRECISIONS = {"auto": ("auto", False), "bf16": ("on", False), "fp16": ("off", True), "fp32": ("off", False)}


def bf16_obstacle(compute_capability: tuple[int, int] | None, cpu_fast: str = "off") -> str:
    """Return why bfloat16 cannot be used, or "".

    Args:
        compute_capability: None on a CPU.
        cpu_fast: The value of --cpu_fast: Paddle's own operators of a CPU have no half precision.
    """
    if compute_capability is None:
        return "the CPU has no kernels in half precision" if cpu_fast == "off" else bfloat16_obstacle()
    if compute_capability < BF16_CAPABILITY:
        return f"compute capability {'.'.join(map(str, compute_capability))} has no bfloat16, 8.0 (A100, 3090) has"
    return ""


def instead_of_bf16(compute_capability: tuple[int, int] | None) -> str:
    """Return the flags to use where there is no bfloat16."""
    return "--bf16 0" if compute_capability is None else "--bf16 0 --fp16 1 --scale_loss 32768, or --bf16 auto"


def resolve(
    bf16: str, fp16: bool, compute_capability: tuple[int, int] | None, cpu_fast: str = "off"
) -> tuple[bool, bool]:
    """Resolve the switch --bf16 and the flag --fp16 to PaddleNLP's (bf16, fp16).

    auto: bfloat16 if the card has it, float16 on an older card, as --fp16 says on a CPU. To PaddleNLP a CPU computes in
    float32: see products_in_bfloat16.

    Raises:
        UserError: For on and required where there is no bfloat16.
    """
    if bf16 == "off":
        return False, fp16
    obstacle = bf16_obstacle(compute_capability, cpu_fast)
    if not obstacle:
        if compute_capability is None:
            return False, fp16
        return True, fp16 and bf16 != "auto"
    if bf16 == "auto":
        return False, fp16 or compute_capability is not None
    raise UserError(f"--bf16: found {bf16}, but {obstacle}. Use {instead_of_bf16(compute_capability)}.")


def inference_dtype(requested: str | None, stored: str, compute_capability: tuple[int, int] | None) -> tuple[str, str]:
    """Return (dtype of a model that answers, a line where it is not its weights' on a card, else "").

    Args:
        requested: By --dtype.
        stored: Of the weights.
        compute_capability: None on a CPU.

    Raises:
        UserError: For bfloat16 on a device without it.
    """
    obstacle = bf16_obstacle(compute_capability, "auto")
    if requested == "bfloat16" and obstacle:
        other = "float32" if compute_capability is None else "float16, or float32"
        raise UserError(f"--dtype: found bfloat16, but {obstacle}. Use --dtype {other}.")
    if compute_capability is None and requested == "bfloat16":  # see launch/cpu/bfloat16.py
        return "float32", "precision: weights in bfloat16 in products of matrices, float32 in sums and all else"
    if compute_capability is None:  # a CPU has few operators for others
        return requested or "float32", ""
    if requested or stored != "bfloat16" or not obstacle:
        return requested or stored, ""
    return "float16", f"precision: float16, not the weights' bfloat16: {obstacle}"


def stated(precision: str | None, bf16: str, fp16: bool) -> tuple[str, bool]:
    """Return --precision as the switch --bf16 and the flag --fp16, which apply where it is not given."""
    return PRECISIONS[precision] if precision else (bf16, fp16)


def expected(values: Any, compute_capability: tuple[int, int] | None) -> tuple[bool, bool]:
    """Return PaddleNLP's (bf16, fp16) of a run. values: has the flags. Raises UserError as `resolve` does."""
    requested = stated(values.precision, values.bf16 or "off", bool(values.fp16))
    return resolve(*requested, compute_capability, values.cpu_fast or "off")


def products_in_bfloat16(values: Any) -> bool:
    """Return whether a run on a CPU computes products of matrices in bfloat16, and all else in float32.

    Args:
        values: Has the flags, as the user gave them.
    """
    bf16, fp16 = stated(values.precision, str(values.bf16 or "off"), bool(values.fp16))
    return bf16 != "off" and not fp16 and not bf16_obstacle(None, values.cpu_fast or "off")


def attention_dtype(bf16: bool, fp16: bool, level: str) -> str:
    """Return the dtype in which attention is computed.

    Args:
        bf16: The flags.
        fp16: The flags.
        level: --fp16_opt_level, which also applies to bfloat16; O1 computes attention in half precision
            (paddle/amp/amp_lists.py).
    """
    if level == "O0":
        return "float32"
    return "bfloat16" if bf16 else "float16" if fp16 else "float32"


def line(
    values: Any,
    bf16: bool,
    fp16: bool,
    compute_capability: tuple[int, int] | None,
    rounds_products: bool = False,
    obstacle: str = "",
) -> str:
    """Return the line about the precision of a run.

    Args:
        values: Has the flags.
        bf16: PaddleNLP's.
        fp16: PaddleNLP's.
        compute_capability: None on a CPU.
        rounds_products: Whether a CPU computes products in bfloat16.
        obstacle: Why a CPU that has bfloat16 does not, found at the start.
    """
    if rounds_products:
        return "precision: bfloat16 in products of matrices, float32 in sums, norms, softmax, loss and stored weights"
    if values.precision == "auto" or obstacle:
        return describe_choice(bf16, values.scale_loss, compute_capability, values.cpu_fast or "off", obstacle)
    return describe(bf16, fp16, values.scale_loss, compute_capability)


def describe(bf16: bool, fp16: bool, scale_loss: float, compute_capability: tuple[int, int] | None) -> str:
    """Return one line about the precision."""
    if bf16:
        return "precision: bfloat16"
    if fp16 and compute_capability is None:
        return f"precision: float32, as {bf16_obstacle(None)}; loss scale {scale_loss:g} as for float16"
    if fp16:
        obstacle = bf16_obstacle(compute_capability)
        return f"precision: float16, loss scale {scale_loss:g}" + (f" ({obstacle})" if obstacle else "")
    return "precision: float32"


def describe_choice(
    bf16: bool, scale_loss: float, compute_capability: tuple[int, int] | None, cpu_fast: str = "off", obstacle: str = ""
) -> str:
    """Return one line about the choice of auto and its reason."""
    if compute_capability is None:
        return (
            f"precision: float32, chosen here as {obstacle or bf16_obstacle(None, cpu_fast)}; cards from A100 on "
            "get bfloat16, those before float16"
        )
    if bf16:
        number = ".".join(map(str, compute_capability))
        return f"precision: bfloat16, chosen as compute capability {number} has it: the range of float32, no loss scale"
    return f"precision: float16, loss scale {scale_loss:g}, chosen as {bf16_obstacle(compute_capability)}"
