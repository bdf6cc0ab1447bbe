"""LLaMA, Qwen2 and Qwen2-MoE with flash attention make a mask where none is given, and wait for the device to drop it.

paddlenlp/transformers/llama/modeling.py and qwen2/modeling.py, forward of the model: without a mask they make one of
[batch, 1, length, length], compare it with the causal one, and read the answer on the host.
Without the correction: each forward pass of training makes some tensors of that size, 4,096 tokens x micro batch 4 in
16 bits are 128 MiB each, and no operator of a layer is started before the device has come to the end of the last pass.
Here: where no mask is given, upstream's switch for it (USE_CASUAL_MASK) is on for that call: no mask, causal attention.
"""

# pyright: reportAttributeAccessIssue=false
# One function replaces methods of classes with different signatures.

from contextvars import ContextVar
from functools import wraps
from inspect import signature

from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.qwen2 import modeling as qwen2
from paddlenlp.transformers.qwen2_moe import modeling as qwen2_moe

MASKS = ("attention_mask", "attn_mask_startend_row_indices")

MODELS = (llama.LlamaModel, qwen2.Qwen2Model, qwen2_moe.Qwen2MoeModel)

_forward = {kind: kind.forward for kind in MODELS}
_switch = llama.get_use_casual_mask
_without_mask: ContextVar[bool] = ContextVar("without_mask", default=False)


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    for kind, upstream in _forward.items():
        kind.forward = _knowing_that_there_is_none(upstream)
    for module in (llama, qwen2, qwen2_moe):
        module.get_use_casual_mask = lambda: _without_mask.get() or _switch()


def _knowing_that_there_is_none(upstream):
    parameters = signature(upstream)

    @wraps(upstream)
    def forward(self, *args, **kwargs):
        given = parameters.bind(self, *args, **kwargs).arguments
        none = self.config.use_flash_attention and all(given.get(name) is None for name in MASKS)
        before = _without_mask.set(none)
        try:
            return upstream(self, *args, **kwargs)
        finally:
            _without_mask.reset(before)

    # paddlenlp drops arguments that a new forward does not name (transformers/utils.py, adapt_stale_fwd_patch).
    forward.__signature__ = parameters
    return forward
