"""Are the weights numbers? Paddle's cross-entropy on a CPU takes NaN logits for ln V, as if nothing were wrong."""

import paddle
from paddle.base import core

from launch.checkpoint.ranks import gather
from launch.checkpoint.weight_files import listed
from launch.errors import UserError

FLOATS = (paddle.float32, paddle.float16, paddle.bfloat16)


def require_numbers(model) -> None:
    """Raises UserError on all ranks where a parameter of any rank has NaN or infinite values. Called by all together.

    Under stage 3 a rank looks at its slices, of what is offloaded at the values in host memory.
    """
    here = [name for name, parameter in model.named_parameters() if not _are_numbers(parameter)]
    names = sorted({name for of_rank in gather(here) for name in of_rank})
    if names:
        raise UserError(
            f"the weights are no numbers: NaN or infinite values in {listed(names)}. Nothing can be evaluated with "
            "them: resume from an earlier checkpoint, with a lower --learning_rate or --bf16 1 instead of --fp16 1."
        )


def _are_numbers(parameter: paddle.Tensor) -> bool:
    values = getattr(parameter, "fw_storage", None)  # the slice that stage 3 keeps of a parameter it has released
    values = parameter if values is None else values
    if values.dtype not in FLOATS or not values._is_initialized():
        return True
    if values.place.is_cuda_pinned_place():
        values = values.detach()._copy_to(core.CPUPlace(), True)
    return bool(paddle.isfinite(values).all())
