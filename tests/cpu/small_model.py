"""The small LLaMA of these tests and its data. Imports Paddle: for scripts with a process of their own."""

import numpy as np
import paddle
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY, LENGTH = 256, 32


def model(seed: int = 0, **configuration) -> LlamaForCausalLM:
    """Hidden size 64, 4 layers, random weights; those of the norms, too: ones hide a forgotten factor."""
    paddle.seed(seed)
    common = dict(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64, seq_length=LENGTH,
        use_fused_rms_norm=False,
    )  # fmt: skip
    made = LlamaForCausalLM(LlamaConfig(**{**common, **configuration}))
    for name, weight in made.named_parameters():
        if "norm" in name:
            weight.set_value(paddle.normal(1.0, 0.1, weight.shape))
    return made


def batch(step: int, length: int = LENGTH) -> paddle.Tensor:
    return paddle.to_tensor(np.random.RandomState(step).randint(0, VOCABULARY, (4, length + 1)))
