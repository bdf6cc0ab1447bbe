"""LLaMA with use_fused_rms_norm fails at its first layer: AttributeError, use_fast_layer_norm.

paddlenlp/transformers/llama/modeling.py, LlamaRMSNorm.forward: passes on config.use_fast_layer_norm, which requests
another module (fast_ln) and which no configuration but GPT's has. Corrected: LLaMA's is False unless it is set.
"""

from paddlenlp.transformers import LlamaConfig


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    if not hasattr(LlamaConfig, "use_fast_layer_norm"):
        LlamaConfig.use_fast_layer_norm = False  # pyright: ignore[reportAttributeAccessIssue]
