"""Bloom: paddlenlp/transformers/bloom/modeling.py."""

from collections.abc import Iterator

from launch.families.family import (
    FUSED_LINEAR,
    NO_PIPELINE,
    NO_SEQUENCE,
    Family,
    HuggingFace,
    TokenizerFiles,
    Values,
    native,
    taken,
)
from launch.families.forward import FLOAT32, Model
from launch.families.parameters import WORD, Parameter, attention_heads, layers, linear, norm
from launch.tape.autograd import Tensor


def _parameters(config: dict) -> Iterator[Parameter]:
    hidden = config["hidden_size"]
    yield Parameter("bloom.word_embeddings.weight", (config["vocab_size"], hidden), WORD)
    yield from norm("bloom.word_embeddings_layernorm", hidden)
    for i in range(layers(config)):
        layer = f"bloom.h.{i}"
        yield from norm(f"{layer}.input_layernorm", hidden)
        yield from linear(f"{layer}.self_attention.query_key_value", hidden, 3 * hidden)
        yield from linear(f"{layer}.self_attention.dense", hidden, hidden)
        yield from norm(f"{layer}.post_attention_layernorm", hidden)
        yield from linear(f"{layer}.mlp.dense_h_to_4h", hidden, 4 * hidden)
        yield from linear(f"{layer}.mlp.dense_4h_to_h", 4 * hidden, hidden)
    yield from norm("bloom.ln_f", hidden)


class BloomForward(Model):
    """Bloom's forward pass."""

    def __init__(self, job, memory, weights):
        super().__init__(job, memory, weights)
        self.heads = attention_heads(job.config) // self.tensor_parallel
        self.head_size = self.hidden // attention_heads(job.config)

    def prepare(self) -> Tensor | None:
        """Return the mask of each head in float32 under exact attention.

        Under flash attention only packed rows have one.
        """
        if self.job.flash_attention:
            return super().prepare() if self.job.masked else None
        with self.memory.of("attention"):
            return self.ops.new((self.batch * self.heads, self.length, self.keys_length), FLOAT32)

    def embed(self) -> Tensor:
        """Return the input of the first layer."""
        with self.memory.of("embedding"):
            x = self.word_embedding("bloom.word_embeddings")
            return self.layer_norm("bloom.word_embeddings_layernorm", x)

    def layer(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of one layer."""
        name = f"bloom.h.{index}"
        first_norm = self.layer_norm(f"{name}.input_layernorm", x)
        with self.memory.of("attention"):
            attention = self.attention(f"{name}.self_attention", first_norm, mask)
        attention = self.residual(x, attention)
        second_norm = self.layer_norm(f"{name}.post_attention_layernorm", attention)
        self.alive(first_norm)
        with self.memory.of("MLP"):
            inner = self.gelu(self.column(f"{name}.mlp.dense_h_to_4h", second_norm))
            mlp = self.row(f"{name}.mlp.dense_4h_to_h", inner)
        out = self.residual(attention, mlp)
        self.alive(second_norm, inner)
        return out

    def attention(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of the attention block."""
        ops = self.ops
        fused = self.column(f"{name}.query_key_value", x)
        fused = ops.reshape(fused, (self.batch, self.length, self.heads, 3, self.head_size))
        each = (self.batch, self.length, self.heads, self.head_size)
        query, key, value = (ops.slice(fused, each) for _ in range(3))
        key, value = self.each(lambda x: self.with_prefix(x, 1), key, value)
        if self.job.flash_attention:
            context, kept = self.alibi_attention(query, key, value, mask), [query, key, value]
        else:
            context, kept = self.exact_attention(query, key, value, mask)
        context = ops.reshape(context, (self.batch, self.length, self.heads * self.head_size))
        out = ops.dropout(self.row(f"{name}.dense", context), self.probability("hidden_dropout"))
        self.alive(x, fused, *kept, context)
        return out

    def exact_attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None):
        """Return [batch, length, heads, head size], and the tensors that upstream's function holds until its end."""
        ops = self.ops
        flat = (self.batch * self.heads, self.length, self.head_size)
        query = ops.reshape(ops.transpose(query, (0, 2, 1, 3)), flat)
        key = ops.reshape(ops.transpose(key, (0, 2, 3, 1)), (flat[0], flat[2], self.keys_length))
        value = ops.reshape(ops.transpose(value, (0, 2, 1, 3)), (flat[0], self.keys_length, flat[2]))
        alibi = ops.new((flat[0], 1, self.keys_length), self.item)
        scores = ops.add(alibi, ops.scale(ops.matmul(query, key)))
        scores = ops.cast(scores, FLOAT32)
        assert mask is not None, "exact attention always has a mask"
        masked = ops.add(scores, mask)
        weights = ops.cast(ops.softmax(masked), self.item)
        self.alive(masked)
        weights = ops.dropout(weights, self.probability("attention_dropout"))
        context = ops.matmul(weights, value)
        context = ops.reshape(context, (self.batch, self.heads, self.length, self.head_size))
        context = ops.transpose(context, (0, 2, 1, 3))
        return context, [query, key, value, alibi, scores, weights]

    def gelu(self, x: Tensor) -> Tensor:
        """Return 0.5 x (1 + tanh(0.798 x (1 + 0.0447 x x))), operator by operator: each saves its factors."""
        ops = self.ops
        inner = ops.multiply(ops.scale(x), ops.scale(ops.multiply(ops.scale(x), x)))
        out = ops.multiply(ops.scale(x), ops.scale(ops.tanh(inner)))
        self.alive(x, inner)
        return out

    def norm(self, x: Tensor) -> Tensor:
        """Return the output of the last norm."""
        return self.layer_norm("bloom.ln_f", x)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(x, self.weights["bloom.word_embeddings.weight"], True)


def _read_config(theirs: Values) -> dict:
    theirs.only(slow_but_exact=False, tie_word_embeddings=True)
    depth, heads = theirs.get("n_layer", theirs.get("num_hidden_layers")), theirs.get("n_head")
    return {
        "model_type": "bloom",
        **theirs.take("vocab_size"),
        "hidden_size": theirs.get("hidden_size", theirs.get("n_embed")),
        "n_layer": depth,
        "n_head": heads or theirs.take("num_attention_heads")["num_attention_heads"],
        "layer_norm_epsilon": theirs.get("layer_norm_epsilon", 1e-5),
        "initializer_range": theirs.get("initializer_range", 0.02),
        "apply_residual_connection_post_layernorm": theirs.get("apply_residual_connection_post_layernorm", False),
        "attention_dropout": theirs.get("attention_dropout", 0.0),
        "hidden_dropout": theirs.get("hidden_dropout", 0.0),
    }


def _write_config(ours: dict) -> dict:
    sizes = ("vocab_size", "hidden_size", "n_layer", "n_head", "layer_norm_epsilon", "initializer_range")
    others = ("apply_residual_connection_post_layernorm", "attention_dropout", "hidden_dropout")
    return native("bloom", "BloomForCausalLM") | taken(ours, *sizes, *others)


BLOOM = Family(
    name="bloom",
    title="Bloom",
    model_type="bloom",
    config_class="BloomConfig",
    model_class="BloomForCausalLM",
    pipeline_class=None,
    tokenizer_class="BloomTokenizer",
    rehearsal_config="bloom-rehearsal",
    linear_layers=FUSED_LINEAR,
    prefix_postprocess="bloom_postprocess_past_key_value",
    chat_template="plain",
    lacking={
        "pipeline_parallel": NO_PIPELINE,
        "sequence_parallel": NO_SEQUENCE,
    },
    corrections=("bloom_zero_weights", "bloom_flash_alibi"),
    parameters=_parameters,
    forward=BloomForward,
    published=HuggingFace(
        model_type="bloom",
        read_config=_read_config,
        write_config=_write_config,
        renamed=((r"^bloom\.", "transformer."),),
        optional_prefix="transformer.",
        tokenizer=TokenizerFiles(),
    ),
    rotary=False,
    flash_dropout=True,
    alibi=True,
)
