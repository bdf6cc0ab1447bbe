"""The arithmetic and the memory traffic of a model's layers for one micro batch on one rank, in seconds.

What a program reaches of a card's rates is one constant for each kind of work, the same for all cards and models. None
is fitted to a single case. HALF_SIDE and NVLINK were chosen once, among four pairs of values, with the published rows
of pretraining on A100 in view (docs/plan.md).
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, fsum

from launch.families.parameters import (
    ALIBI_COLUMNS,
    EXPERTS,
    LINEAR,
    NORM,
    Parameter,
    attention_heads,
    head_size,
    key_value_heads,
    query_width,
    share_of_tokens,
    stated,
    with_layers,
)
from launch.families.registry import parameters
from launch.plan.hardware import Card
from launch.plan.job import Job, Lora

# Large half-precision products reach 271 of an A100's 312 TFLOP/s, 794 of an H100's 989.
# Source: S. Bekman, Machine Learning Engineering, "Maximum Achievable Matmul FLOPS".
MATMUL = 0.85
# A product's rate falls as its sides become shorter than many tiles of 128 to 256 (tiles are not full, nor is the last
# wave of them, and each starts with an empty pipeline): a side of n reaches n / (n + HALF_SIDE). Chosen on those rows.
HALF_SIDE = 400
HALF_SIDE_CPU = 32  # its tiles are vectors and caches
# FlashAttention-2 on an A100, causal, heads of 128: 160 to 190 of 312 TFLOP/s. Source: arXiv 2307.08691, figure 5.
ATTENTION = 0.5
# Streams over device memory: 1.6 to 1.7 of an A100's 2.04 TB/s. Source: BabelStream's published results for A100.
MEMORY = 0.8
# Collectives over NVLink: 230 of an A100's 300 GB/s for large messages (NVIDIA nccl-tests, bus bandwidth), less for
# those of a layer.
NVLINK = 0.65
# The network between nodes: of what its links carry together. Assumed, as for PCIe: nothing is fitted, since the
# published runs hardly tell (docs/plan.md).
NETWORK = 0.8
# Pinned copies: 25 of 31.5 GB/s (NVIDIA's bandwidthTest, PCIe 4 x16). Pageable memory reaches half of that or less.
PCIE = 0.8
# Without NVLink or peer-to-peer access NCCL goes through host memory: each byte crosses PCIe twice.
THROUGH_HOST = 0.5
# Seconds until a collective begins: 10 to 30 microseconds (nccl-tests, small messages).
COLLECTIVE_START = 20e-6
# Seconds that Python and the framework need to start the operators of one layer, forward and backward, and to update
# its tensors; the card waits where its own work is shorter. Measured on a CPU with a model of 64 dimensions (Paddle
# 3.3.1, paddlenlp 3.0.0b4, AMD EPYC): 1.39 + 0.82 and 0.71 ms.
HOST_LAYER = 2.2e-3
HOST_UPDATE = 0.7e-3
HOST_EXPERT = 0.2  # of that, each expert of a layer; measured alike: 0.14 to 0.21
# Of that, each adapted matrix: dropout, two products, scale and sum beside some 60 operators of a layer. Fitted to the
# first half of benchmarks/published_runs.json (Qwen-1.8B with 256 and 512 tokens, where the host alone counts).
HOST_ADAPTER = 0.08


@dataclass(frozen=True)
class Pace:
    """The seconds that a card needs for each kind of work.

    Attributes:
        item: Bytes of an element.
        dtype: Of matrix products.
    """

    card: Card
    dtype: str
    item: int

    def multiply(self, rows: float, inputs: float, outputs: float) -> float:
        """Return the seconds of [rows, inputs] x [inputs, outputs]: arithmetic or memory, whichever takes longer."""
        share, half_side = MATMUL, HALF_SIDE if self.card.compute_capability else HALF_SIDE_CPU
        for side in (rows, inputs, outputs):
            share *= side / (side + half_side)
        arithmetic = 2 * rows * inputs * outputs / (self.card.flops(self.dtype) * self.card.reach[0] * share)
        return max(arithmetic, self.stream(self.item * (rows * inputs + inputs * outputs + rows * outputs)))

    def attend(self, flops: float) -> float:
        """Return the seconds of attention's products."""
        return flops / (self.card.flops(self.dtype) * self.card.reach[1] * ATTENTION)

    def stream(self, size: float) -> float:
        """Return the seconds of reading and writing bytes of device memory."""
        return size / (self.card.memory_bandwidth * MEMORY)

    def send(self, size: float, messages: float = 1) -> float:
        """Return the seconds of sending bytes, in this many messages, between the cards of a machine, one direction."""
        rate = self.card.nvlink * NVLINK if self.card.nvlink else self.card.host_link * PCIE * THROUGH_HOST
        return size / rate + messages * COLLECTIVE_START

    def copy(self, size: float) -> float:
        """Return the seconds of copying bytes to or from host memory."""
        return size / (self.card.host_link * PCIE)


# Linear layers whose inputs tensor parallelism shards; it shards the outputs of all others.
ROW_PARALLEL = ("o_proj", "down_proj", "dense", "dense_4h_to_h", "out_proj", "linear2", "w2")

# How often operators read or write a tensor of tokens x width, counted in paddlenlp's code: a norm by one kernel, a
# RMSNorm by separate ones (casts to float32 count double), rotary embedding of queries and keys, the two additions
# of a layer, the copies before and after tensor parallel collectives, an adapter per input and per output, and what a
# DoRA adds per output.
FUSED_NORM, SEPARATE_NORM = 2, 20
ROTATION, FUSED_ROTATION = 11, 2
RESIDUALS = 6
WIDENING = 10  # ALiBi under flash attention: queries scaled, columns put beside all three, and cut from the result
PARALLEL_COPIES = 4
ADAPTER_INPUT, ADAPTER_OUTPUT, DORA_OUTPUT = 3, 5, 5
# How often rows of [tokens x experts of a token, hidden] are on the way to experts and back: copied, sorted, divided,
# put together, sorted back, summed (launch/models/expert_mixing.py).
DISPATCH = 10
KERNEL_SIZES = 32  # those of heads in flash attention's kernels are its multiples
# Bytes a logit: cast to float32, softmax and its gradient, cast back. In chunks (launch/training/chunked_loss.py) they
# are as many: 64 MiB of a chunk in float32 are more than the 40 MB of an A100's cache.
LOGIT_BYTES = 30
# Bytes a weight of a trained head that chunks move: each chunk widens its product (2 + 4) and adds it to the float32
# sum (8 + 4); at the end the sum is scaled (4 + 4), cast (4 + 2) and put together (2 + 2).
CHUNK_SUM_BYTES, CHUNKS_END_BYTES = 18, 18
# What the backward pass does of each kind of work, the forward pass being 1.
BACKWARD = 2.0
BACKWARD_FROZEN = 1.0  # products: the gradient of the inputs alone
BACKWARD_FLASH = 2.5  # its kernel computes the scores again


@dataclass(frozen=True)
class LayerTime:
    """Seconds of one layer's forward pass: products of attention's and of the MLP's linear layers, scores, the rest."""

    attention_products: float
    mlp_products: float
    scores: float
    elementwise: float

    @property
    def products(self) -> float:
        """Seconds of all products."""
        return self.attention_products + self.mlp_products

    @property
    def total(self) -> float:
        """Seconds of the layer."""
        return self.products + self.scores + self.elementwise


@dataclass(frozen=True)
class Work:
    """The work of one rank for a micro batch."""

    job: Job
    pace: Pace

    @property
    def experts(self) -> int:
        """Experts of a layer; 0 where it has an MLP for all tokens."""
        return stated(self.job.config, EXPERTS) or 0

    @property
    def host_layers(self) -> float:
        """The number of layers with one MLP that a layer amounts to, by the operators that the host starts."""
        return 1 + HOST_EXPERT * self.experts + HOST_ADAPTER * len(self._adapted)

    @property
    def tokens(self) -> int:
        """Tokens of a micro batch."""
        return self.job.batch * self.job.rank_length

    @property
    def tensor(self) -> int:
        """Tensor parallel degree."""
        return self.job.layout.tensor_parallel_degree

    @cached_property
    def layer(self) -> list[Parameter]:
        """The tensors of one transformer layer: all layers are alike."""
        return [parameter for parameter in parameters(with_layers(self.job.config, 1)) if ".0." in parameter.name]

    @cached_property
    def linear(self) -> list[Parameter]:
        """The matrices of one layer."""
        return [parameter for parameter in self.layer if parameter.kind == LINEAR]

    @cached_property
    def _adapted(self) -> list[Parameter]:
        """The matrices of one layer that have an adapter."""
        targets = self.job.adapter.targets if isinstance(self.job.adapter, Lora) else ()
        return [parameter for parameter in self.linear if parameter.module in targets]

    @cached_property
    def forward(self) -> LayerTime:
        """Seconds of a layer's forward pass."""
        linear = self.linear
        return LayerTime(
            attention_products=fsum(self.product(parameter) for parameter in linear if _in_attention(parameter)),
            mlp_products=fsum(self.product(parameter) for parameter in linear if not _in_attention(parameter)),
            scores=self._scores(self.job.engine.softmax_passes[0], 1.0),
            elementwise=self.pace.stream(self._elementwise_bytes(linear)),
        )

    @cached_property
    def backward(self) -> LayerTime:
        """Seconds of a layer's backward pass."""
        products = BACKWARD if self.job.trains_all else BACKWARD_FROZEN
        return LayerTime(
            attention_products=products * self.forward.attention_products,
            mlp_products=products * self.forward.mlp_products,
            scores=self._scores(
                self.job.engine.softmax_passes[1], BACKWARD_FLASH if self.job.flash_attention else BACKWARD
            ),
            elementwise=BACKWARD * self.forward.elementwise,
        )

    @property
    def recomputed(self) -> LayerTime:
        """The share of the forward pass that the backward pass repeats."""
        whole, none = self.forward, 0.0
        return {
            "": LayerTime(none, none, none, none),
            "core_attn": LayerTime(none, none, whole.scores, none),
            "full_attn": LayerTime(whole.attention_products, none, whole.scores, whole.elementwise / 2),
            "full": whole,
        }[self.job.recompute]

    @property
    def slices(self) -> float:
        """Slices of a micro batch in which MLPs and norms are computed."""
        return self.tokens / (self.job.slice_tokens or self.tokens)

    @property
    def recomputed_in_slices(self) -> float:
        """Seconds of a layer's MLP and norms, which slices compute again."""
        return self.forward.mlp_products + self.forward.elementwise / 2 if self.slices > 1 else 0.0

    @property
    def head(self) -> float:
        """Seconds of the output head and the loss, forward and backward.

        The products of a chunk have fewer rows. A score is a product with one row a text, which is nothing beside the
        rest.
        """
        if self.job.reward_model:
            return 0.0
        job, hidden = self.job, self.job.config["hidden_size"]
        vocabulary = job.config["vocab_size"] / self.tensor
        rows = job.loss_chunk(ceil(vocabulary), job.trains_all) or self.tokens
        chunks = self.tokens / rows
        product = chunks * self.pace.multiply(rows, hidden, vocabulary)
        moved = self.tokens * vocabulary * LOGIT_BYTES
        if chunks > 1 and job.trains_all:
            moved += hidden * vocabulary * (chunks * CHUNK_SUM_BYTES + CHUNKS_END_BYTES)
        again = self.head_forward if chunks > 1 and job.weighed else 0.0
        computed = product * (1 + (BACKWARD if job.trains_all else BACKWARD_FROZEN)) + self.pace.stream(moved) + again
        return computed + 2 * chunks * self._dequantized_head

    @property
    def head_forward(self) -> float:
        """Seconds of the output head and the loss without gradients: half of what is moved."""
        vocabulary = self.job.config["vocab_size"] / self.tensor
        product = self.pace.multiply(self.tokens, self.job.config["hidden_size"], vocabulary)
        return product + self.pace.stream(self.tokens * vocabulary * LOGIT_BYTES / 2) + self._dequantized_head

    @property
    def _dequantized_head(self) -> float:
        """Seconds in which a quantized output layer is computed from its codes once."""
        job, size = self.job, self.job.config["hidden_size"] * self.job.config["vocab_size"]
        return self.pace.stream(job.base.moved(size, job.item)) if job.base and job.base.head else 0.0

    def product(self, linear: Parameter) -> float:
        """Return the seconds of the product with this matrix, forward; its gradient's takes as long."""
        inputs, outputs = linear.shape  # and of this rank
        row = linear.module in ROW_PARALLEL
        inputs, outputs = (inputs / self.tensor, outputs) if row else (inputs, outputs / self.tensor)
        slices = 1.0 if _in_attention(linear) else self.slices
        seconds = slices * self.pace.multiply(self.rows(linear) / slices, inputs, outputs)
        if self.job.base:  # a quantized weight is first written out in the dtype of the product
            seconds += slices * self.pace.stream(self.job.base.moved(inputs * outputs, self.job.item))
        return seconds

    def rows(self, linear: Parameter) -> float:
        """Return the tokens that a matrix multiplies: an expert's its part of them, each expert having equally many."""
        return self.tokens * share_of_tokens(linear, self.job.config)

    def _scores(self, passes: float, products: float) -> float:
        """Return the seconds of softmax(Q K) V. products: how often the forward pass's are computed."""
        job, length = self.job, self.job.sequence_length
        flops = 4 * self.tokens * length * query_width(job.config) / self.tensor * products
        scores = self.tokens * length * attention_heads(job.config) / self.tensor
        by_kernel = self.pace.attend(flops * self._widened) / job.engine.flash_rate
        if job.flash_attention and job.masked:  # which it reads for each head
            return by_kernel + self.pace.stream(scores * job.item)
        if job.flash_attention:
            return by_kernel / 2  # it leaves out the half above the diagonal
        return self.pace.attend(flops) + self.pace.stream(scores * passes * job.item)

    @property
    def exchanged(self) -> float:
        """Bytes of queries, keys, values and outputs of a layer on this rank, which the ranks of a sample exchange."""
        job, query = self.job, query_width(self.job.config)
        key_value = key_value_heads(job.config) * head_size(job.config) if job.flash_attention else query
        return 2 * self.tokens * (query + key_value) * job.item

    @property
    def _widened(self) -> float:
        """The factor by which ALiBi's columns widen a head.

        Kernels are made for multiples of 32 (PaddlePaddle/flash-attention, csrc/flash_attn/src).
        """
        if not self.job.family.alibi:
            return 1.0
        size = head_size(self.job.config)
        return ceil((size + ALIBI_COLUMNS) / KERNEL_SIZES) * KERNEL_SIZES / size

    def _elementwise_bytes(self, linear: list[Parameter]) -> float:
        """Return the bytes that the operators between the products read and write, forward."""
        job, hidden, query = self.job, self.job.config["hidden_size"], query_width(self.job.config)
        layer_norm = any(parameter.kind == NORM and parameter.name.endswith(".bias") for parameter in self.layer)
        norm = FUSED_NORM if layer_norm or job.fused_rms_norm else SEPARATE_NORM
        whole = (2 * norm + RESIDUALS) * hidden
        if self.experts:
            whole += DISPATCH * job.config["num_experts_per_tok"] * hidden
        key_value = head_size(job.config) * key_value_heads(job.config)
        sharded = 2 * (query + key_value)  # what attention reads and writes
        if job.family.rotary:
            sharded += (FUSED_ROTATION if job.fused_rope else ROTATION) * (query + key_value)
        if job.family.alibi and job.flash_attention:
            sharded += WIDENING * query
        if any(parameter.module == "q_norm" for parameter in self.layer):
            sharded += norm * (query + key_value)
        # An activation reads what the first products of the MLP wrote and writes what the last one reads.
        mlp = [parameter for parameter in linear if not _in_attention(parameter)]
        share = {parameter.name: share_of_tokens(parameter, job.config) for parameter in linear}
        sharded += fsum(
            share[parameter.name] * parameter.shape[0 if parameter.module in ROW_PARALLEL else 1] for parameter in mlp
        )
        by_output = ADAPTER_OUTPUT + (DORA_OUTPUT if isinstance(job.adapter, Lora) and job.adapter.dora else 0)
        sharded += fsum(
            share[parameter.name] * (ADAPTER_INPUT * parameter.shape[0] + by_output * parameter.shape[1])
            for parameter in self._adapted
        )
        copies = PARALLEL_COPIES * hidden if self.tensor > 1 else 0
        whole /= self.tensor if job.sequence_parallel else 1
        return self.tokens * job.item * (whole + copies + sharded / self.tensor)


def _in_attention(linear: Parameter) -> bool:
    return "attn." in linear.name or "attention." in linear.name
