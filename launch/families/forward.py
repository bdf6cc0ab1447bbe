"""What the families share: weights by name, linear layers whole or sharded, norms, exact attention.

A tensor is alive until the last operator that reads it. Where a variable of upstream's function lives longer, until the
function returns or the variable gets another value, `alive` names it at that place.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from launch.families.parameters import ALIBI_COLUMNS, SCORE
from launch.tape.autograd import FLOAT32, Leaf, Memory, Storage, Tensor, in_slices, recompute
from launch.tape.operators import Operators
from launch.tape.quantized import Format


class ForwardJob(Protocol):
    """The values that a forward pass reads of a run: attributes of a Job of launch/plan/job.py, which is frozen."""

    @property
    def config(self) -> dict:
        """The model's configuration."""
        ...

    @property
    def layout(self) -> Any:
        """The degrees of parallelism."""
        ...

    @property
    def batch(self) -> int:
        """Rows of a micro batch on a rank."""
        ...

    @property
    def sequence_length(self) -> int:
        """Tokens of a row."""
        ...

    @property
    def sequence_parallel(self) -> bool:
        """Whether activations between blocks are sharded over the tensor parallel ranks."""
        ...

    @property
    def engine(self) -> Any:
        """What runs the step."""
        ...

    @property
    def recompute(self) -> str:
        """The granularity of recomputation; "" without."""
        ...

    @property
    def offload(self) -> Any:
        """The offload to the host."""
        ...

    @property
    def flash_attention(self) -> bool:
        """Whether attention is FlashAttention."""
        ...

    @property
    def masked(self) -> bool:
        """Whether rows have a mask of their own, such as packed ones."""
        ...

    @property
    def fused_rms_norm(self) -> bool:
        """Whether RMSNorm is one kernel."""
        ...

    @property
    def fused_rope(self) -> bool:
        """Whether rotary embedding is one kernel."""
        ...

    @property
    def tensor_parallel_overlap(self) -> bool:
        """Whether tensor parallel communication overlaps with computing."""
        ...

    @property
    def drops_out(self) -> bool:
        """Whether dropout is active."""
        ...

    @property
    def adapter(self) -> Any:
        """The adapter that is trained; None without."""
        ...

    @property
    def base(self) -> Format | None:
        """The format of frozen quantized weights; None where they are not quantized."""
        ...

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        ...

    @property
    def float32_norms_and_head(self) -> bool:
        """Whether norms and head compute in float32."""
        ...

    @property
    def item(self) -> int:
        """Bytes of an element of activations."""
        ...

    @property
    def weighed(self) -> bool:
        """Whether target tokens have weights."""
        ...

    def rows_of_head(self, shape: tuple[int, ...]) -> int:
        """Return how many rows of an output layer [hidden, vocabulary] are updated at a time; 0: all."""
        ...

    def update_bytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes that the update of a tensor takes."""
        ...

    def loss_chunk(self, vocabulary: int, trained: bool) -> int:
        """Return the tokens whose logits exist at once; 0: all."""
        ...

    @property
    def slice_tokens(self) -> int:
        """The tokens that MLPs and norms compute at once; 0: all."""
        ...

    @property
    def host_embedding(self) -> bool:
        """Whether the word embedding is in host memory."""
        ...


class Model(ABC):
    """One rank's part of a model.

    Attributes:
        weights: By name, this rank's part of each; see launch/plan/shards.py. prefix: of the names of the layers,
            such as llama.layers.
        batch, length: Of the samples of a micro batch, as far as they are on this rank.
        slices_sequence: Whether MLPs and norms can be computed in slices.
        shares_samples: Whether several ranks can share a sample (launch/training/sequence_ranks.py).
    """

    slices_sequence = shares_samples = False

    def __init__(self, job: ForwardJob, memory: Memory, weights: dict[str, Tensor]):
        self.job, self.memory, self.weights = job, memory, weights
        self.ops = Operators(memory)
        self.batch, self.length = job.batch, -(-job.sequence_length // job.layout.sep_parallel_degree)
        self.item = job.item
        self.tensor_parallel = job.layout.tensor_parallel_degree
        self.hidden = job.config["hidden_size"]
        self.past: Tensor | None = None
        self.prefix_length = getattr(job.adapter, "tokens", 0)  # a LoRA has none

    # ---- lifetimes

    def alive(self, *tensors: Tensor | None) -> None:
        """Mark these tensors as alive at this moment."""
        self.ops.alive(*tensors)

    def each(self, function: Callable[[Tensor], Tensor], *tensors: Tensor) -> list[Tensor]:
        """Return function(x) of each x; all are alive until the last is done, as in upstream's a, b = f(a), f(b)."""
        outs = [function(x) for x in tensors]
        self.alive(*tensors)
        return outs

    def kept(self) -> list[Storage]:
        """Return what the model keeps of the last forward pass until the next."""
        return [self.past.storage] if self.past and self.past.storage else []

    # ---- for the families

    def probability(self, key: str, default: float = 0.0) -> float:
        """Return the probability of the dropout at this key of the configuration."""
        return self.job.config.get(key, default) if self.job.drops_out else 0.0

    def prepare(self) -> Tensor | None:
        """Return what all layers of a forward pass share: a mask to be added to the scores."""
        with self.memory.of("attention"):
            length = self.job.sequence_length if self.job.masked else self.length
            return self.ops.new((self.batch, 1, length, length + self.prefix_length), self.item)

    def tables(self, layers: int) -> dict[str, int]:
        """Return the bytes, by part, of what `layers` layers keep beside their parameters."""
        return {}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the activations between two layers."""
        if self.job.sequence_parallel:
            return (self.batch * self.length // self.tensor_parallel, self.hidden)
        return (self.batch, self.length, self.hidden)

    @abstractmethod
    def embed(self) -> Tensor:
        """Return the input of the first layer."""

    @abstractmethod
    def layer(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of one layer. index: its number."""

    @abstractmethod
    def attention(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of the attention block of this name, without the norm before it."""

    def core(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return the attention between its linear layers, in families that recompute it alone."""
        raise NotImplementedError

    @abstractmethod
    def norm(self, x: Tensor) -> Tensor:
        """Return the output of the last norm."""

    @abstractmethod
    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of the output head from the last norm's output."""

    def for_loss(self, logits: Tensor) -> Tensor:
        """Return the logits as the model's own criterion hands them to the entropy."""
        return logits

    # ---- prefix

    @property
    def keys_length(self) -> int:
        """Positions of keys and values, with the prefix's before the sample's own."""
        return self.length + self.prefix_length

    def read_prefix(self) -> None:
        """Read the prefix's keys and values of all layers for each sample; they are saved until the next reading."""
        self.alive(self.past)
        self.past = None
        table = self.weight("prefix_encoder.0.weight")
        if table is not None:
            with self.memory.of("attention"):
                tokens, width = table.shape
                rows = self.ops.embedding(Tensor((tokens,), 8, None), table)
                self.past = self.ops.tile(rows, (self.batch, tokens, width // self.tensor_parallel))

    def with_prefix(self, x: Tensor, axis: int) -> Tensor:
        """Return keys or values with the prefix's before them. axis: of positions."""
        if self.past is None:
            return x
        shape = tuple(self.prefix_length if place == axis else size for place, size in enumerate(x.shape))
        return self.ops.concat([self.ops.slice(self.past, shape), x], axis=axis)

    # ---- recomputation

    def layer_block(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of a layer, recomputed where --recompute_granularity is full."""
        return self._block("full", lambda x, mask: self.layer(index, x, mask), x, mask)

    def attention_block(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of an attention block, recomputed where --recompute_granularity is full_attn."""
        return self._block("full_attn", lambda x, mask: self.attention(name, x, mask), x, mask)

    def core_block(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return the attention, recomputed where --recompute_granularity is core_attn."""
        core = self.exchanged if self.job.layout.sep_parallel_degree > 1 else self.core
        return self._block("core_attn", core, query, key, value, mask)

    def exchanged(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return attention over some heads of whole samples, whose outputs return to the ranks of the tokens."""
        ranks = self.job.layout.sep_parallel_degree
        shapes = [(x.shape[0], x.shape[1] * ranks, x.shape[2] // ranks, x.shape[3]) for x in (query, key, value)]
        heads = [self.exchange(x, shape) for x, shape in zip((query, key, value), shapes, strict=True)]
        if not (self.job.flash_attention or self.job.masked):  # made of whole samples, in each layer
            mask = self.ops.new((self.batch, 1, self.length * ranks, self.length * ranks), self.item)
        out = self.core(heads[0], heads[1], heads[2], mask)
        self.alive(query, key, value, *heads, mask)
        back = self.exchange(out, out.shape)
        self.alive(out)
        return back

    def exchange(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return x in this shape, by way of its parts for each rank in order, and of those that come from each."""
        parts, received = self.ops.new(x.shape, x.item), self.ops.new(x.shape, x.item)
        self.alive(x, parts)
        out = self.ops.record(self.ops.new(shape, x.item), [x], temporary=2 * x.nbytes)
        self.alive(received)
        return out

    def _block(self, granularity: str, function: Callable[..., Tensor], x: Tensor, *others: Tensor | None) -> Tensor:
        """Return the function's output, recomputed at this granularity.

        A block whose input has no gradient, such as the first layer over a frozen embedding, is not recomputed.
        """
        if x.node is None and self.job.engine.recomputes_first and self.memory.recording:
            x = Tensor(x.shape, x.item, x.storage, Leaf(self.memory, "input", x.shape, x.elements), strided=x.strided)
        if self.job.recompute == granularity and x.node is not None:
            out = recompute(self.memory, function, x, *others, offloaded=self.job.offload.activations)
        else:
            out = function(x, *others)
        self.alive(x, *others)
        return out

    def sliced(self, function: Callable[[Tensor], Tensor], x: Tensor, *layers: str) -> Tensor:
        """Return function(x), a slice at a time where --sequence_slices has it so. layers: those that it reads."""
        if not 0 < self.job.slice_tokens < x.shape[0] * x.shape[1]:
            return function(x)
        trained = [name for name, one in self.weights.items() if one.node and name.startswith(layers)]
        return in_slices(self.memory, function, x, self.job.slice_tokens, self.weights, trained)

    # ---- layers

    def alibi_attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return flash attention with ALiBi in columns of queries and keys (launch/models/alibi_columns.py)."""
        ops = self.ops

        def widened(x: Tensor) -> Tensor:
            return ops.concat([x, Tensor((*x.shape[:-1], ALIBI_COLUMNS), x.item, None)])

        wide_query, wide_key, wide_value = self.each(widened, ops.scale(query), key, value)
        out = ops.flash_attention(wide_query, wide_key, wide_value, mask)
        cut = ops.reshape(ops.slice(out, query.shape), query.shape)
        self.alive(query, key, value, out)
        return cut

    def weight(self, name: str) -> Tensor | None:
        """Return a weight by its name; None where the model has none."""
        return self.weights.get(name)

    def linear(self, name: str, x: Tensor) -> Tensor:
        """Return the output of a linear layer with its adapter."""
        return self.stretched(name, self.with_lora(name, self.product(name, x, self.weight(f"{name}.bias")), x))

    def product(self, name: str, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x W + b, W quantized or not. On a CPU the product is a tensor beside the sum with the bias."""
        weight, base = self.weights[f"{name}.weight"], self.job.base
        product = self.ops.quantized_matmul(x, weight, base) if base else self.ops.matmul(x, weight)
        out = product if bias is None else self.ops.add(product, bias)
        self.alive(x)
        return out

    def with_lora(self, name: str, out: Tensor, x: Tensor, divided: str = "") -> Tensor:
        """Return out + scaling A B x, where there is an adapter.

        divided: "column" or "row" under tensor parallelism.
        """
        first, second = self.weight(f"{name}.lora_A"), self.weight(f"{name}.lora_B")
        if first is None or second is None:
            return out
        ops = self.ops
        low = ops.matmul(ops.dropout(x, self.job.adapter.dropout), first)
        if divided:
            low = self.identity(low) if divided == "column" else self.all_reduce(low)
        out = ops.add_in_place(out, ops.scale(ops.matmul(low, second)))
        self.alive(x, low)
        return out

    def stretched(self, name: str, out: Tensor) -> Tensor:
        """Return out + (out - b) (lengths - 1), where the adapter is a DoRA (launch/adapters/dora.py)."""
        magnitude, bias, ops = self.weight(f"{name}.lora_magnitude"), self.weight(f"{name}.bias"), self.ops
        if magnitude is None:
            return out
        if self.job.base:  # the weight is computed once more for the lengths of its columns
            weight = self.weights[f"{name}.weight"]
            self.memory.take(self.job.base.scratch(weight.elements, weight.item) + weight.nbytes)
        product = out if bias is None else ops.add(out, bias)
        stretched = ops.add(out, ops.multiply(product, ops.scale(magnitude)))
        self.alive(out, product)
        return stretched

    def column(self, name: str, x: Tensor) -> Tensor:
        """Return the output of a linear layer that is sharded by columns.

        Each rank reads a copy of the input, under sequence parallelism gathered from all ranks.
        """
        if self.tensor_parallel == 1:
            return self.linear(name, x)
        if self.job.sequence_parallel:
            whole = self.gather(x)
        else:
            whole = x if self.job.tensor_parallel_overlap else self.identity(x)
        out = self.product(name, whole, self.weight(f"{name}.bias"))
        if self.job.sequence_parallel and self.job.tensor_parallel_overlap:
            self.ops.keep(out, x)  # beside what was gathered
        out = self.stretched(name, self.with_lora(name, out, whole if self.job.sequence_parallel else x, "column"))
        self.alive(x, whole)
        return out

    def row(self, name: str, x: Tensor) -> Tensor:
        """Return the output of a linear layer that is sharded by rows, summed over the ranks."""
        if self.tensor_parallel == 1:
            return self.linear(name, x)
        out = self.product(name, x)
        out = self.reduce_scatter(out) if self.job.sequence_parallel else self.all_reduce(out)
        out = self.with_lora(name, out, x, "row")
        bias = self.weight(f"{name}.bias")
        out = self.stretched(name, out if bias is None else self.ops.add(out, bias))
        self.alive(x)
        return out

    # ---- collectives of tensor parallelism (paddle/distributed/fleet/layers/mpu, utils/sequence_parallel_utils.py)

    def identity(self, x: Tensor) -> Tensor:
        """Return a copy whose gradient is summed in place."""
        return self.ops.record(self.ops.new(x.shape, x.item), [x], alias=0)

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return x summed over the ranks, in place; the gradient is copied."""
        return self.ops.record(Tensor(x.shape, x.item, x.storage), [x])

    def gather(self, x: Tensor, summed: bool = True) -> Tensor:
        """Return all positions. summed: the gradients of the ranks are summed, else each takes its part."""
        out = self.ops.new((x.shape[0] * self.tensor_parallel, *x.shape[1:]), x.item)
        # Reduce-scatter on a CPU sums a copy (launch/rehearsal/process_group.py).
        return self.ops.record(out, [x], temporary=out.nbytes if summed and not self.job.on_gpu else 0)

    def reduce_scatter(self, x: Tensor) -> Tensor:
        """Return this rank's positions of the sum over the ranks."""
        copy = None if self.job.on_gpu else self.ops.new(x.shape, x.item)
        out = self.ops.new((x.shape[0] // self.tensor_parallel, *x.shape[1:]), x.item)
        self.alive(copy)
        return self.ops.record(out, [x])

    def scatter(self, x: Tensor) -> Tensor:
        """Return this rank's positions, as a view; the gradient is gathered."""
        shape = (x.shape[0] // self.tensor_parallel, *x.shape[1:])
        return self.ops.record(Tensor(shape, x.item, x.storage), [x])

    # ---- embedding and head

    def word_embedding(self, name: str) -> Tensor:
        """Return [batch, length, hidden], or under sequence parallelism this rank's rows of [batch length, hidden]."""
        table = self.weights[f"{name}.weight"]
        x = self.ops.embedding(Tensor((self.batch, self.length), 8, None), table)
        if self.job.host_embedding:  # rows come in float32
            self.memory.take(FLOAT32 * x.elements + x.nbytes)
        if self.tensor_parallel > 1 and table.shape[0] < self.job.config["vocab_size"]:
            x = self.all_reduce(x)
        if self.job.sequence_parallel:
            x = self.scatter(self.ops.reshape(x, (self.batch * self.length, self.hidden)))
        return x

    def head(self, x: Tensor, weight: Tensor, transposed: bool) -> Tensor:
        """Return this rank's part of the logits; where the loss is computed in chunks, the losses of the tokens."""
        with self.memory.of("logits and loss"):
            if self.job.float32_norms_and_head:
                x, weight = self.ops.cast(x, FLOAT32), self.ops.cast(weight, FLOAT32)
            if self.job.sequence_parallel:
                x = self.ops.reshape(self.gather(x, summed=False), (self.batch, self.length, self.hidden))
            if self.tensor_parallel > 1:
                x = self.identity(x)
            trained = self.memory.recording and weight.node is not None
            base = self.job.base if self.job.base and self.job.base.head else None
            chunk = self.job.loss_chunk(weight.shape[0 if transposed else 1], trained)
            if chunk:
                rows = self.job.rows_of_head(weight.shape) if trained and not transposed else 0
                if rows:
                    taken = self.job.update_bytes((rows, weight.shape[1]))
                    return self.ops.entropy_by_rows(x, weight, chunk, self.entropy, rows, taken)
                return self.ops.chunked_entropy(x, weight, transposed, chunk, self.entropy, self.job.weighed, base)
            if base:
                return self.ops.quantized_columns(x, weight, base)
            return self.ops.matmul(x, weight, transpose_y=transposed)

    def score(self, x: Tensor) -> Tensor:
        """Return the scores of the last tokens of all texts, in float32 (launch/models/reward_model.py)."""
        ops, weight = self.ops, self.weights[SCORE]
        with self.memory.of("logits and loss"):
            whole = self.gather(x, summed=False) if self.job.sequence_parallel else x
            last = ops.record(ops.new((self.batch, self.hidden), x.item), [whole])
            self.alive(x, whole)
            return ops.matmul(ops.cast(last, FLOAT32), ops.cast(weight, FLOAT32))

    def entropy(self, logits: Tensor) -> Tensor:
        """Return the entropy of each token, by this rank's part of its logits in float32."""
        labels = Tensor((*logits.shape[:-1], 1), 8, None)
        if logits.shape[-1] < self.job.config["vocab_size"]:
            return self.ops.parallel_cross_entropy(logits, labels, self.job.on_gpu)
        return self.ops.cross_entropy(logits, labels)

    def rms_norm(self, name: str, x: Tensor, cast_first: bool = True) -> Tensor:
        """Return RMSNorm of x. cast_first: cast to the weight's dtype before multiplying by it, not after."""

        def norm(x: Tensor, weight: Tensor) -> Tensor:
            ops = self.ops
            if self.job.fused_rms_norm:
                return ops.rms_norm(x, weight)
            variance = ops.mean(ops.power(ops.cast(x, FLOAT32)))
            x = ops.multiply(ops.rsqrt(ops.scale(variance)), x)
            self.alive(variance)
            if cast_first:
                out = ops.multiply(ops.cast(x, weight.item), weight)
            else:
                out = ops.cast(ops.multiply(x, weight), weight.item)
            self.alive(x)
            return out

        return self._norm(norm, x, f"{name}.weight")

    def residual(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum of the residual stream and a block's output."""
        with self.memory.of("residuals"):
            return self.ops.add(x, y)

    def layer_norm(self, name: str, x: Tensor) -> Tensor:
        """Return LayerNorm of x."""
        return self._norm(self.ops.layer_norm, x, f"{name}.weight", f"{name}.bias")

    def _norm(self, function, x: Tensor, *names: str) -> Tensor:
        """Return a norm with its weights, in float32 where the run computes it so (launch/training/model.py)."""

        def norm(x: Tensor) -> Tensor:
            weights = [self.weights[name] for name in names]
            if not self.job.float32_norms_and_head:
                out = function(x, *weights)
                self.alive(x)
                return out
            wide = [self.ops.cast(each, FLOAT32) for each in (x, *weights)]
            out = self.ops.cast(function(*wide), self.item)
            self.alive(x, *wide)
            return out

        with self.memory.of("norms"):
            return self.sliced(norm, x, *names)
