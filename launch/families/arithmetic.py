"""Numbers that follow from a model's configuration alone: parameters, arithmetic per token, first loss, shards."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from data_tools.cli import DIGITS, whole_number
from launch.errors import UserError
from launch.families.parameters import (
    HEAD,
    LINEAR,
    ROUTER,
    WORD,
    attention_heads,
    head_size,
    key_value_heads,
    layers,
    query_width,
    share_of_tokens,
)
from launch.families.registry import family_of_config, parameters

MATRICES = (LINEAR, ROUTER)
# Of launch/generation: tokens of prompts in one step, as others wait so long for their next token; and texts whose keys
# and values lie together, at most: larger products are slower on a CPU, whose cache they leave.
PROMPT_CHUNK, TEXTS_TOGETHER = 256, 16


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model of any family, under the same names for all.

    Attributes:
        query_width: Elements of all heads of a query.
        parameters: Of the whole model, a tied head counted once.
        matmul_parameters: Parameters that multiply a token: the layers' matrices and the output head, not the input
            embedding; of the experts as many as a token is sent to.
        head_std: Standard deviation of the head's random weights.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    query_width: int
    parameters: int
    matmul_parameters: int
    head_std: float

    @classmethod
    def from_config(cls, config: dict) -> "ModelShape":
        """Return the sizes of a configuration as launch/families/configs has it or paddlenlp writes it."""
        tensors = parameters(config)
        by_kind = {tensor.kind: tensor for tensor in reversed(tensors)}
        head = by_kind.get(HEAD) or by_kind[WORD]  # a shared head is the word embedding
        return cls(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            num_hidden_layers=layers(config),
            num_attention_heads=attention_heads(config),
            query_width=query_width(config),
            parameters=sum(tensor.size for tensor in tensors),
            matmul_parameters=head.size
            + round(
                sum(tensor.size * share_of_tokens(tensor, config) for tensor in tensors if tensor.kind in MATRICES)
            ),
            head_std=family_of_config(config).head_std(config),
        )

    def training_flops_per_token(self, sequence_length: float, attention: bool, frozen: bool = False) -> float:
        """Return the floating-point operations of forward and backward per token: 6 N, with `attention` plus 12 L q s.

        N are the parameters in matrix products: 2 N forward, 4 N backward. The scores and the weighted sum of attention
        cost 12 L q s more (q: query_width), the causal half counted in full. Recomputation is not counted: this is the
        arithmetic of the model, not of the machine. Source: PaLM (arXiv 2204.02311), appendix B. Where the model's own
        weights are frozen, their gradients are not computed: 4 N, and what adapters add is not counted.
        """
        flops = (4 if frozen else 6) * self.matmul_parameters
        if attention:
            flops += 12 * self.num_hidden_layers * self.query_width * sequence_length
        return flops

    @property
    def first_loss(self) -> float:
        """Expected cross-entropy in nats before the first step, from random weights: ln V + h sigma^2 / 2.

        The last norm gives the head inputs of unit mean square, so each logit is normal with variance h sigma^2
        (sigma: the head's standard deviation) and the mean of ln sum exp exceeds ln V by half of that variance.
        """
        return math.log(self.vocab_size) + self.hidden_size * self.head_std**2 / 2


def lora_parameters(config: dict, layers: Iterable[str], rank: int, dora: bool = False) -> int:
    """Return the parameters of adapters of this rank: rank (inputs + outputs) for each linear layer.

    Args:
        config: Of the model.
        layers: Last parts of the names of the linear layers that have one, such as q_proj.
        rank: Of the adapters.
        dora: Whether each output has a magnitude, too.
    """
    adapted = set(layers)
    matrices = [tensor for tensor in parameters(config) if tensor.kind == LINEAR and tensor.module in adapted]
    return sum(rank * sum(tensor.shape) + dora * tensor.shape[1] for tensor in matrices)


def prefix_parameters(config: dict, tokens: int) -> int:
    """Return the parameters of a prefix: a key and a value for each token, layer and head of keys and values."""
    return tokens * layers(config) * 2 * key_value_heads(config) * head_size(config)


def require_divisible(config: dict, ranks: int) -> None:
    """Raise UserError where tensor parallelism cannot shard a model over this number of processes, a card each."""
    sizes = {"attention heads": attention_heads(config), "key-value heads": key_value_heads(config)}
    if not family_of_config(config).odd_vocabulary:
        sizes["vocabulary"] = config["vocab_size"]
    for name, size in sizes.items():
        if size % ranks:
            largest = next(n for n in range(ranks, 0, -1) if not any(size % n for size in sizes.values()))
            raise UserError(
                f"{ranks} processes cannot divide this model's {name}, {size}. Use {largest}: "
                "--tensor_parallel_degree, or --nproc_per_node or --gpus of the launcher."
            )


# A chunk of the loss has a sixteenth of the tokens: beside the rest of a step that is little. More than 128 MiB of
# float32 logits at once save no time; below 64 tokens operators take longer to start than to compute.
CHUNK_SHARE, CHUNK_BYTES, CHUNK_TOKENS = 16, 128 * 2**20, 64
# Each chunk reads the weight, whose products with few tokens are slow: a sixteenth as many tokens as the layer has
# inputs are 256 in models of 7 billion parameters. Of a trained weight it also reads and writes the float32 gradient,
# 14 bytes an element with the product that is added: with a quarter as many, no more than its logits move anyway.
CHUNK_INPUTS, CHUNK_INPUTS_TRAINED = 16, 4


def loss_chunk(flag: str, tokens: int, vocabulary: int, inputs: int, trained: bool) -> int:
    """Return the number of tokens whose logits exist at once, by --loss_chunk_tokens; 0 means all tokens.

    auto computes in chunks where that takes less than half of the memory: float32 logits and softmax of the tokens, 8
    bytes an id, and the float32 gradient of the weight, 4 bytes an id and input.

    Args:
        flag: The value of the flag.
        tokens: Of a batch, the longest.
        vocabulary: Ids that a rank has.
        inputs: Of the output layer.
        trained: Whether the gradient of its weight is computed.

    Raises:
        UserError: If the flag is no number.
    """
    if flag == "off":
        return 0
    if chunk := whole_number(flag, 1, 10**DIGITS):
        return min(chunk, tokens)
    if flag != "auto":
        raise UserError(f"--loss_chunk_tokens: found {flag!r}, allowed: auto, off or a whole number above 0.")
    chunk = max(-(-tokens // CHUNK_SHARE), CHUNK_TOKENS, inputs // CHUNK_INPUTS)
    chunk = max(1, min(chunk, CHUNK_BYTES // (4 * vocabulary)))
    gradient = 0
    if trained:
        chunk, gradient = max(chunk, inputs // CHUNK_INPUTS_TRAINED), inputs // 2  # in tokens: 4 inputs / 8
    return chunk if 2 * (chunk + gradient) < tokens else 0


SLICE_TOKENS = 8192  # products with more rows are no faster, and a quantized weight is computed for each slice


def tokens_of_slice(flag: str, tokens: int) -> int:
    """Return how many of a batch's tokens MLPs and norms compute at once, by --sequence_slices.

    Raises:
        UserError: If the flag is no number.
    """
    if flag == "auto":
        return min(tokens, SLICE_TOKENS)
    if flag == "off":
        return tokens
    if slices := whole_number(flag, 1, 10**DIGITS):
        return -(-tokens // slices)
    raise UserError(f"--sequence_slices: found {flag!r}, allowed: auto, off or a whole number above 0.")


# Bytes of a half-precision product with its float32 copy, of which a weight's gradient is made.
PRODUCT_BYTES = 64 * 2**20


def rows_of_part(rows: int, columns: int) -> int:
    """Return how many rows of an output layer's gradient are made and used at a time: whole blocks of moments."""
    whole = MOMENT_BLOCK // math.gcd(columns, MOMENT_BLOCK)
    return min(rows, max(1, PRODUCT_BYTES // (6 * columns * whole)) * whole)


MOMENT_ELEMENTS = 2**22  # enough for a card's kernels
NOISE_OFFSETS = 2**16  # places of the noise at which their roundings may begin
MOMENT_BLOCK = 256  # elements that share a scale where moments are stored in 8 bits


def rows_at_once(rows: int, row: int) -> int:
    """Return how many rows of `row` elements are updated at a time by moments in 16 bits, or factored ones."""
    return min(rows, max(1, MOMENT_ELEMENTS // max(1, row)))
