"""What a family lists its parameters with, and the sizes that all families have, under the names each has for them.

Names and shapes are those of paddlenlp 3.0.0b4 (a linear layer's weight is [inputs, outputs]) and of the files that
we write; tests compare them with the models themselves. A head that shares the word embedding is not listed twice.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

WORD, POSITION, LINEAR, BIAS, NORM, HEAD = "word embedding", "position embedding", "linear", "bias", "norm", "head"


@dataclass(frozen=True)
class Parameter:
    """One tensor. kind: one of the six words above, what the tensor does."""

    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)


def layers(config: dict) -> int:
    """Transformer layers, under the name that the family has for them."""
    return config.get("n_layer") or config.get("num_layers") or config["num_hidden_layers"]


def attention_heads(config: dict) -> int:
    """Heads of the queries."""
    return config.get("n_head") or config["num_attention_heads"]


def key_value_heads(config: dict) -> int:
    """Heads of keys and values: fewer than of queries under grouped-query attention."""
    return config.get("num_key_value_heads") or config.get("multi_query_group_num") or attention_heads(config)


def head_size(config: dict) -> int:
    """Elements of an attention head, under the names that families have for it."""
    return config.get("head_dim") or config.get("kv_channels") or config["hidden_size"] // attention_heads(config)


def linear(name: str, inputs: int, outputs: int, bias: bool = True) -> Iterator[Parameter]:
    """A linear layer, its weight as paddlenlp has it."""
    yield Parameter(f"{name}.weight", (inputs, outputs), LINEAR)
    if bias:
        yield Parameter(f"{name}.bias", (outputs,), BIAS)


def norm(name: str, size: int, bias: bool = True) -> Iterator[Parameter]:
    """A norm."""
    yield Parameter(f"{name}.weight", (size,), NORM)
    if bias:
        yield Parameter(f"{name}.bias", (size,), NORM)
