"""OPT's masks by dtype, for test_opt_bfloat16_mask.py."""

import paddle
from paddlenlp.transformers.opt import modeling

from launch.upstream import correct


def smallest(dtype: str, corrected: bool) -> float:
    """What is added to the score of a token that is padding."""
    if corrected:
        correct(["opt_bfloat16_mask"])
    paddle.set_default_dtype(dtype)
    mask = modeling._expand_mask(paddle.to_tensor([[True, False]]), tgt_length=1)
    return float(mask.astype("float32").min())
