"""ChatGLM2 with flash attention mixes the samples of a batch.

paddlenlp/transformers/chatglm_v2/modeling.py, SelfAttention.forward: the result of scaled_dot_product_attention,
[batch, length, heads, size], is reshaped to [length, batch, ...] without being transposed. Right for one sample only,
and wrong under sequence parallel. Corrected: the function gives this one caller its result transposed.
"""

import paddle.nn.functional
from paddlenlp.transformers.chatglm_v2 import modeling

from launch.upstream.module_view import ModuleView


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    if not isinstance(modeling.F, ModuleView):
        modeling.F = ModuleView(modeling.F, scaled_dot_product_attention=_length_first)


def _length_first(*args, **kwargs) -> paddle.Tensor:
    """Return the attention as [length, batch, heads, size]."""
    return paddle.nn.functional.scaled_dot_product_attention(*args, **kwargs).transpose([1, 0, 2, 3])
