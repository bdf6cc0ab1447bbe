"""What LLaMA, Baichuan, Qwen2, Qwen3 and Mistral share: RMSNorm, rotary positions or ALiBi, SwiGLU, grouped queries.

The forward pass is that of paddlenlp/transformers/llama and qwen2, modeling.py.
"""

from collections.abc import Callable, Iterator

from launch.families.family import Values, taken
from launch.families.forward import FLOAT32, Model
from launch.families.parameters import (
    HEAD,
    WORD,
    Parameter,
    attention_heads,
    head_size,
    key_value_heads,
    layers,
    linear,
    norm,
    query_width,
)
from launch.models.rotary_scaling import ORIGINAL, published_scaling, reach, rotary_rows, scaling_of
from launch.tape.autograd import Tensor

LINEAR_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ROTARY_CORRECTIONS = ("rotary_tables_of_every_layer", "scaled_positions_ignored")  # of families that scale positions
CONFIG_KEYS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"),
    *("intermediate_size", "initializer_range", "rms_norm_eps", "tie_word_embeddings"),
)


def gated_mlp(config: dict, layer: str) -> Iterator[Parameter]:
    """Yield the parameters of SwiGLU."""
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    yield from linear(f"{layer}.mlp.gate_proj", hidden, ffn, bias=False)
    yield from linear(f"{layer}.mlp.up_proj", hidden, ffn, bias=False)
    yield from linear(f"{layer}.mlp.down_proj", ffn, hidden, bias=False)


def gated_parameters(
    config: dict,
    prefix: str,
    qkv_bias: bool = False,
    head_norms: bool = False,
    mlp: Callable[[dict, str], Iterator[Parameter]] = gated_mlp,
) -> Iterator[Parameter]:
    """Yield the parameters of a decoder with RMSNorm and separate query, key and value.

    head_norms: norms of each head's query and key. mlp: the parameters of a layer's MLP, by its name.
    """
    hidden, query = config["hidden_size"], query_width(config)
    key_value = head_size(config) * key_value_heads(config)
    yield Parameter(f"{prefix}.embed_tokens.weight", (config["vocab_size"], hidden), WORD)
    for i in range(layers(config)):
        layer = f"{prefix}.layers.{i}"
        yield from linear(f"{layer}.self_attn.q_proj", hidden, query, qkv_bias)
        yield from linear(f"{layer}.self_attn.k_proj", hidden, key_value, qkv_bias)
        yield from linear(f"{layer}.self_attn.v_proj", hidden, key_value, qkv_bias)
        yield from linear(f"{layer}.self_attn.o_proj", query, hidden, bias=False)
        for part in "qk" if head_norms else "":
            yield from norm(f"{layer}.self_attn.{part}_norm", head_size(config), bias=False)
        yield from mlp(config, layer)
        yield from norm(f"{layer}.input_layernorm", hidden, bias=False)
        yield from norm(f"{layer}.post_attention_layernorm", hidden, bias=False)
    yield from norm(f"{prefix}.norm", hidden, bias=False)
    if not config.get("tie_word_embeddings"):
        yield Parameter("lm_head.weight", (hidden, config["vocab_size"]), HEAD)


def read_gated_config(theirs: Values, model_type: str) -> dict:
    """Return our configuration of a published one whose heads divide the hidden size.

    Scaled positions are read elsewhere.
    """
    heads = theirs.take("num_attention_heads")["num_attention_heads"]
    theirs.only(head_dim=theirs.take("hidden_size")["hidden_size"] // heads)
    return read_gated_sizes(theirs, model_type)


def read_gated_sizes(theirs: Values, model_type: str) -> dict:
    """Return our configuration of a published one, without the size of heads."""
    theirs.only(hidden_act="silu")
    sizes = theirs.take("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    return {
        "model_type": model_type,
        **sizes,
        "num_key_value_heads": theirs.get("num_key_value_heads", sizes["num_attention_heads"]),
        **theirs.take("max_position_embeddings"),
        "initializer_range": theirs.get("initializer_range", 0.02),
        "rms_norm_eps": theirs.get("rms_norm_eps", 1e-6),
        "rope_theta": rope_theta(theirs),
        "tie_word_embeddings": theirs.get("tie_word_embeddings", False),
    }


def write_gated_config(ours: dict) -> dict:
    """Return the published configuration from ours, without its model type, and with scaled positions."""
    return {
        "hidden_act": "silu",
        **taken(ours, *CONFIG_KEYS),
        "num_key_value_heads": ours.get("num_key_value_heads") or ours["num_attention_heads"],
        "rope_theta": ours.get("rope_theta", 10000.0),
        **published_scaling(ours),
    }


def rope_theta(theirs: Values, default: float = 10000.0) -> float:
    """Return `rope_theta`, which transformers 5 writes within `rope_parameters`."""
    return float(theirs.get("rope_parameters", {}).get("rope_theta") or theirs.get("rope_theta", default))


def read_scaling(theirs: Values) -> dict:
    """Return our keys of a published configuration with scaled positions; {} where they are not scaled."""
    scaling = scaling_of(theirs.values, theirs.path)
    if scaling is None:
        return {}
    positions = theirs.take("max_position_embeddings")["max_position_embeddings"]
    if scaling["rope_type"] == "dynamic":  # transformers takes no other length for the original one
        scaling[ORIGINAL] = positions
    return {"rope_scaling": scaling, "max_position_embeddings": reach(scaling, positions)}


class GatedDecoder(Model):
    """The forward pass of decoders with RMSNorm, rotary positions or ALiBi, and SwiGLU."""

    prefix: str | None = None  # of the parameters' names, where that is not the model_type
    tiles_for_flash_attention = False  # whether flash attention gets as many keys and values as queries
    mlp_name = "mlp"
    slices_sequence = shares_samples = True

    def __init__(self, job, memory, weights):
        super().__init__(job, memory, weights)
        config = job.config
        self.name = self.prefix or config["model_type"]
        self.has_alibi = bool(config.get("alibi"))
        self.heads = attention_heads(config) // self.tensor_parallel
        whole = key_value_heads(config)
        self.key_value_heads = whole if whole % self.tensor_parallel else whole // self.tensor_parallel
        self.head_size = head_size(config)

    def prepare(self) -> Tensor | None:
        """Return the mask that all layers share."""
        return super().prepare() if self.job.masked or not self.job.flash_attention else None

    def tables(self, layers: int) -> dict[str, int]:
        """Return the bytes of cosines and sines once, in float32, and of each layer's frequencies; ALiBi needs none."""
        if self.has_alibi:
            return {}
        length = self.job.sequence_length
        positions = max(self.job.config.get("max_position_embeddings", 0), length)
        rows = rotary_rows(length + self.prefix_length, positions)
        return {"attention": (2 * rows + 2 * layers) * self.head_size * FLOAT32}

    def embed(self) -> Tensor:
        """Return the input of the first layer."""
        with self.memory.of("embedding"):
            return self.word_embedding(f"{self.name}.embed_tokens")

    def layer(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of one layer."""
        name = f"{self.name}.layers.{index}"
        residual = x
        x = self.rms_norm(f"{name}.input_layernorm", x)
        with self.memory.of("attention"):
            x = self.attention_block(f"{name}.self_attn", x, mask)
        x = self.residual(residual, x)
        return self.residual(x, self._mlp_of_layer(name, x))

    def _mlp_of_layer(self, name: str, x: Tensor) -> Tensor:
        norm, mlp = f"{name}.post_attention_layernorm", f"{name}.{self.mlp_name}"

        def compute(x: Tensor) -> Tensor:
            x = self.rms_norm(norm, x)
            with self.memory.of("MLP"):
                return self.mlp(mlp, x)

        return self.sliced(compute, x, f"{norm}.", f"{mlp}.") if self.slices_sequence else compute(x)

    def attention(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of the attention block."""
        ops = self.ops
        query, key, value = (self.column(f"{name}.{part}_proj", x) for part in "qkv")
        query = ops.reshape(query, (self.batch, self.length, self.heads, self.head_size))
        key = ops.reshape(key, (self.batch, self.length, self.key_value_heads, self.head_size))
        value = ops.reshape(value, (self.batch, self.length, self.key_value_heads, self.head_size))
        query, key = self.norm_heads(name, query, key)
        if not self.has_alibi:
            query, key = self.rotate(query, key)
        key, value = self.each(lambda x: self.with_prefix(x, 1), key, value)
        tiled = self.tiles_for_flash_attention or not self.job.flash_attention
        if self.key_value_heads != self.heads and tiled:
            key, value = self.each(lambda x: ops.tile(x, (*x.shape[:2], self.heads, self.head_size)), key, value)
        out = self.row(f"{name}.o_proj", self.core_block(query, key, value, mask))
        self.alive(query, key, value)
        return out

    def norm_heads(self, name: str, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys of this attention block before positions turn them."""
        return query, key

    def rotate(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Turn queries and keys by their positions."""
        if self.job.fused_rope:
            return self.ops.fused_rope(query, key)
        cosine, sine = (self.ops.new((self.batch, self.length, 1, self.head_size), self.item) for _ in range(2))
        rotated = self._rotate(query, cosine, sine), self._rotate(key, cosine, sine)
        self.alive(query, key, cosine, sine)
        return rotated

    def _rotate(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ops = self.ops
        left = ops.multiply(x, cosine)
        half = (*x.shape[:-1], x.shape[-1] // 2)
        first, second = ops.slice(x, half), ops.slice(x, half)
        rotated = ops.concat([ops.scale(second), first])
        out = ops.add(left, ops.multiply(rotated, sine))
        self.alive(x, rotated)
        return out

    def core(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return the attention of queries, keys and values."""
        ops = self.ops
        if self.job.flash_attention:
            attend = self.alibi_attention if self.has_alibi else ops.flash_attention
            return self.merge_heads(attend(query, key, value, mask))
        query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
        weights = ops.matmul(ops.scale(query), ops.transpose(key, (0, 1, 3, 2)))
        if self.has_alibi:
            weights = ops.add(weights, Tensor((self.batch, self.heads, 1, self.keys_length), self.item, None))
        assert mask is not None, "exact attention always has a mask"
        scores = ops.add(weights, mask)
        weights = ops.cast(ops.softmax(ops.scale(ops.cast(scores, FLOAT32))), self.item)
        self.alive(scores)
        out = self.merge_heads(ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3)))
        self.alive(weights)
        return out

    def merge_heads(self, out: Tensor) -> Tensor:
        """Return the heads as one dimension."""
        rows = (self.batch * self.length,) if self.job.sequence_parallel else (self.batch, self.length)
        return self.ops.reshape(out, (*rows, self.heads * self.head_size))

    def mlp(self, name: str, x: Tensor) -> Tensor:
        """Return the output of the MLP."""
        inner = self.ops.swiglu(self.column(f"{name}.gate_proj", x), self.column(f"{name}.up_proj", x))
        out = self.row(f"{name}.down_proj", inner)
        self.alive(x)
        return out

    def norm(self, x: Tensor) -> Tensor:
        """Return the output of the last norm."""
        return self.rms_norm(f"{self.name}.norm", x)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits."""
        tied = self.job.config.get("tie_word_embeddings")
        name = f"{self.name}.embed_tokens.weight" if tied else "lm_head.weight"
        return self.head(x, self.weights[name], bool(tied))
