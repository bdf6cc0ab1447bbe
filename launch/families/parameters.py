"""What a family lists its parameters with, and the sizes that all families have, under the names each has for them.

Names and shapes are those of paddlenlp 3.0.0b4 (a linear layer's weight is [inputs, outputs]) and of the files that
we write; tests compare them with the models themselves. A head that shares the word embedding is not listed twice.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

# Elements that flash attention adds to a head of a model with ALiBi (launch/models/alibi_columns.py): six are needed,
# and kernels take multiples of 8.
ALIBI_COLUMNS = 8

WORD, POSITION, LINEAR, BIAS, NORM, HEAD = "word embedding", "position embedding", "linear", "bias", "norm", "head"
ROUTER = "router"  # chooses the experts of a token; a matrix that every rank has whole, and that no adapter changes

CORRECTION = "correction"  # of the choice of experts: a row in float32 that every rank has whole, and that none trains

# The output layer of a reward model, and how the names of its classes end in transformers and in paddlenlp.
SCORE, SCORED = "score.weight", "ForSequenceClassification"


@dataclass(frozen=True)
class Parameter:
    """One tensor.

    Attributes:
        kind: One of the words above, what the tensor does.
    """

    name: str
    shape: tuple[int, ...]
    kind: str

    @cached_property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def module(self) -> str:
        """The module of the tensor, such as q_proj of llama.layers.0.self_attn.q_proj.weight."""
        return self.name.split(".")[-2]


# What the families' config.json call the same size; the first that is stated counts.
LAYERS = ("n_layer", "num_layers", "num_hidden_layers")
HEADS = ("n_head", "num_attention_heads")
KEY_VALUE_HEADS = ("num_key_value_heads", "multi_query_group_num")
HEAD_SIZE = ("head_dim", "kv_channels")
INNER = ("moe_intermediate_size", "intermediate_size", "ffn_hidden_size", "inner_hidden_size")
POSITIONS = ("max_position_embeddings", "max_sequence_length")
EXPERTS = ("num_local_experts", "num_experts")


def stated(config: dict, names: tuple[str, ...]) -> int | None:
    """Return the size under the first of these names that the configuration has; None where it has none."""
    return next((config[name] for name in names if config.get(name)), None)


def layers(config: dict) -> int:
    """Return the number of transformer layers, under the family's name for it."""
    return stated(config, LAYERS) or config[LAYERS[-1]]


def with_layers(config: dict, count: int) -> dict:
    """Return the configuration of the same model with `count` layers."""
    return config | {name: count for name in LAYERS if name in config}


def attention_heads(config: dict) -> int:
    """Return the number of heads of the queries."""
    return stated(config, HEADS) or config[HEADS[-1]]


def key_value_heads(config: dict) -> int:
    """Return the number of heads of keys and values: fewer than of queries under grouped-query attention."""
    return stated(config, KEY_VALUE_HEADS) or attention_heads(config)


def head_size(config: dict) -> int:
    """Return the elements of an attention head, under the names that families have for it."""
    return stated(config, HEAD_SIZE) or config["hidden_size"] // attention_heads(config)


def gives_scores(config: dict) -> bool:
    """Return whether a configuration belongs to a reward model, which gives a score of a text, not logits."""
    return str((config.get("architectures") or [""])[0]).endswith(SCORED)


def query_width(config: dict) -> int:
    """Return the elements of all heads of a token's query: the hidden size, unless heads have their own size."""
    return attention_heads(config) * head_size(config)


def share_of_tokens(parameter: Parameter, config: dict) -> float:
    """Return the share of the tokens that a matrix multiplies on average: an expert's only those that choose it."""
    experts = stated(config, EXPERTS)
    return config["num_experts_per_tok"] / experts if experts and ".experts." in parameter.name else 1.0


def linear(name: str, inputs: int, outputs: int, bias: bool = True) -> Iterator[Parameter]:
    """Yield the parameters of a linear layer, its weight as paddlenlp has it."""
    yield Parameter(f"{name}.weight", (inputs, outputs), LINEAR)
    if bias:
        yield Parameter(f"{name}.bias", (outputs,), BIAS)


def norm(name: str, size: int, bias: bool = True) -> Iterator[Parameter]:
    """Yield the parameters of a norm."""
    yield Parameter(f"{name}.weight", (size,), NORM)
    if bias:
        yield Parameter(f"{name}.bias", (size,), NORM)
