"""Numbers that follow from a model's configuration alone: parameters, arithmetic per token, first loss."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LlamaShape:
    """The sizes of a LLaMA-like decoder: RMSNorm, SwiGLU, no biases, rotary positions."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    tie_word_embeddings: bool
    initializer_range: float

    @classmethod
    def from_config(cls, config: dict) -> "LlamaShape":
        heads = config["num_attention_heads"]
        return cls(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_hidden_layers=config["num_hidden_layers"],
            num_attention_heads=heads,
            num_key_value_heads=config.get("num_key_value_heads") or heads,
            tie_word_embeddings=config.get("tie_word_embeddings", False),
            initializer_range=config.get("initializer_range", 0.02),
        )

    @property
    def parameters(self) -> int:
        """All parameters: both embeddings (one if tied), every layer and the last norm."""
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        norms = self.hidden_size * (2 * self.num_hidden_layers + 1)
        return embeddings + norms + self.num_hidden_layers * self._matrices_per_layer

    @property
    def matmul_parameters(self) -> int:
        """Parameters that multiply every token: the layers' matrices and the output head, not the input embedding."""
        return self.num_hidden_layers * self._matrices_per_layer + self.vocab_size * self.hidden_size

    @property
    def _matrices_per_layer(self) -> int:
        key_value_size = self.hidden_size * self.num_key_value_heads // self.num_attention_heads
        attention = 2 * self.hidden_size * self.hidden_size + 2 * self.hidden_size * key_value_size
        return attention + 3 * self.hidden_size * self.intermediate_size

    def training_flops_per_token(self, sequence_length: int, attention: bool) -> int:
        """Floating-point operations of forward and backward per token: 6 N, with `attention` plus 12 L h s.

        N are the parameters in matrix products: 2 N forward, 4 N backward. The scores and the weighted sum of
        attention cost 12 L h s more, the causal half counted in full. Recomputation is not counted: this is the
        arithmetic of the model, not of the machine. Source: PaLM (arXiv 2204.02311), appendix B.
        """
        flops = 6 * self.matmul_parameters
        if attention:
            flops += 12 * self.num_hidden_layers * self.hidden_size * sequence_length
        return flops

    @property
    def first_loss(self) -> float:
        """Expected cross-entropy in nats before the first step, from random weights: ln V + h sigma^2 / 2.

        The last norm gives the head inputs of unit mean square, so each logit is normal with variance h sigma^2
        (sigma: the head's standard deviation) and the mean of ln sum exp exceeds ln V by half of that variance.
        """
        return math.log(self.vocab_size) + self.hidden_size * self.initializer_range**2 / 2
