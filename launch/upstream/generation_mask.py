"""generate() without an attention mask fails for LLaMA, Qwen2, Mixtral, Qwen2-MoE and ChatGLM2.

paddlenlp/generation/utils.py, GenerationMixin.prepare_attention_mask_for_generation: makes a mask to be added,
[batch, 1, 1, length], where these families take 1 for a token and 0 for padding, [batch, length]. Corrected for them:
1 where a token is not padding.
"""

import paddle
from paddlenlp.transformers import (
    ChatGLMv2ForCausalLM,
    LlamaForCausalLM,
    MixtralForCausalLM,
    Qwen2ForCausalLM,
    Qwen2MoeForCausalLM,
)

CLASSES = (LlamaForCausalLM, Qwen2ForCausalLM, MixtralForCausalLM, Qwen2MoeForCausalLM, ChatGLMv2ForCausalLM)


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    for model_class in CLASSES:
        model_class.prepare_attention_mask_for_generation = staticmethod(_mask)


def _mask(input_ids: paddle.Tensor, pad_token_id: int | None, eos_token_id: int | None) -> paddle.Tensor:
    """Return the mask, int64 [batch, length].

    It is all ones where padding is the end-of-text token: the two cannot be distinguished.
    """
    if pad_token_id is None or pad_token_id == eos_token_id:
        return paddle.ones_like(input_ids)
    return (input_ids != pad_token_id).astype("int64")
