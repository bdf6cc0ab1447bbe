"""Mistral: paddlenlp/transformers/mistral/modeling.py, which attends to all positions whatever sliding_window says."""

from functools import partial

from launch.families.family import NO_PIPELINE, NO_SEQUENCE, Family, HuggingFace, TokenizerFiles, Values, native, xavier
from launch.families.forward import FLOAT32
from launch.families.gated_decoder import (
    LINEAR_LAYERS,
    GatedDecoder,
    gated_parameters,
    read_gated_config,
    write_gated_config,
)
from launch.models.rotary_scaling import require_plain_positions, rotary_rows
from launch.tape.autograd import Tensor

# The published length, which our max_position_embeddings is not where a window is shorter.
PUBLISHED_LENGTH = "original_max_position_embeddings"


class MistralForward(GatedDecoder):
    """Heads come before positions, norms keep their input in float32, recomputation is of whole layers."""

    shares_samples = False  # paddlenlp computes attention within the layer's forward

    def tables(self, layers: int) -> dict[str, int]:
        """Return the bytes of cosines and sines once, in the weights' dtype, and of each layer's frequencies.

        Frequencies are in float32.
        """
        rows = rotary_rows(self.keys_length, max(self.job.config["max_position_embeddings"], self.length))
        return {"attention": self.head_size * (2 * rows * self.item + layers * FLOAT32 // 2)}

    def layer_block(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of a layer, recomputed whole at every --recompute_granularity."""
        return self._block(self.job.recompute or "full", lambda x, mask: self.layer(index, x, mask), x, mask)

    def attention_block(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of the attention block."""
        ops = self.ops
        query, key, value = (self.column(f"{name}.{part}_proj", x) for part in "qkv")
        query = self._heads_first(query, self.heads)
        key, value = self.each(lambda x: self._heads_first(x, self.key_value_heads), key, value)
        tables = [ops.new((self.keys_length, self.head_size), self.item) for _ in range(2)]
        query, key = self.rotate(query, key)
        key, value = self.each(lambda x: self.with_prefix(x, 2), key, value)
        if self.key_value_heads != self.heads:
            whole = (self.batch, self.heads, self.keys_length, self.head_size)
            key, value = self.each(lambda x: ops.tile(x, whole), key, value)
        out = self.row(f"{name}.o_proj", self.core(query, key, value, mask))
        self.alive(x, query, key, value, *tables)
        return out

    def _heads_first(self, x: Tensor, heads: int) -> Tensor:
        shape = (self.batch, self.length, heads, self.head_size)
        return self.ops.transpose(self.ops.reshape(x, shape), (0, 2, 1, 3))

    def rotate(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Turn queries and keys by their positions."""
        cosine, sine = (self.ops.new((self.batch, 1, self.length, self.head_size), self.item) for _ in range(2))
        rotated = self._rotate(query, cosine, sine), self._rotate(key, cosine, sine)
        self.alive(query, key, cosine, sine)
        return rotated

    def core(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return the attention of queries, keys and values."""
        ops = self.ops
        if self.job.flash_attention:
            query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
            out = ops.transpose(ops.flash_attention(query, key, value, mask), (0, 2, 1, 3))
        else:
            weights = ops.scale(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))))
            assert mask is not None, "exact attention always has a mask"
            weights = ops.add(weights, mask)
            weights = ops.cast(ops.softmax(ops.cast(weights, FLOAT32)), self.item)
            out = ops.matmul(weights, value)
            self.alive(weights)
        out = ops.transpose(out, (0, 2, 1, 3))
        return ops.reshape(out, (self.batch, self.length, self.heads * self.head_size))

    def mlp(self, name: str, x: Tensor) -> Tensor:
        """Return the output of the MLP."""
        gate = self.ops.silu(self.column(f"{name}.gate_proj", x))
        inner = self.ops.multiply(gate, self.column(f"{name}.up_proj", x))
        out = self.row(f"{name}.down_proj", inner)
        self.alive(x)
        return out

    def rms_norm(self, name: str, x: Tensor, cast_first: bool = True) -> Tensor:
        """Return RMSNorm of x, as upstream computes it."""

        def norm(x: Tensor, weight: Tensor) -> Tensor:
            ops = self.ops
            wide = ops.cast(x, FLOAT32)
            variance = ops.mean(ops.power(wide))
            wide = ops.multiply(wide, ops.rsqrt(ops.scale(variance)))
            out = ops.multiply(weight, ops.cast(wide, x.item))
            self.alive(wide, variance)
            return out

        return self._norm(norm, x, f"{name}.weight")


def read_plain_config(theirs: Values, model_type: str) -> dict:
    """Return our configuration without tied embeddings and scaled positions.

    paddlenlp's Mistral and Mixtral leave these out.
    """
    theirs.only(tie_word_embeddings=False)
    require_plain_positions(theirs.values, theirs.path)
    return read_gated_config(theirs, model_type)


def _read_config(theirs: Values) -> dict:
    """Return our configuration.

    Positions end where attention would leave the window: longer sequences have other logits.
    """
    config = read_plain_config(theirs, "mistral")
    length, window = config["max_position_embeddings"], theirs.get("sliding_window")
    if window is None:
        return config | {"sliding_window": None}
    return config | {
        "max_position_embeddings": min(length, window),
        "sliding_window": window,
        PUBLISHED_LENGTH: length,
    }


def _write_config(ours: dict) -> dict:
    length = ours.get(PUBLISHED_LENGTH) or ours["max_position_embeddings"]
    more = {"sliding_window": ours.get("sliding_window"), "max_position_embeddings": length}
    return native("mistral", "MistralForCausalLM") | write_gated_config(ours) | more


MISTRAL = Family(
    name="mistral",
    title="Mistral",
    model_type="mistral",
    config_class="MistralConfig",
    model_class="MistralForCausalLM",
    pipeline_class=None,
    tokenizer_class="LlamaTokenizer",
    rehearsal_config="mistral-rehearsal",
    linear_layers=LINEAR_LAYERS,
    prefix_postprocess="mistral_postprocess_past_key_value",
    chat_template="mistral",
    lacking={"pipeline_parallel": NO_PIPELINE, "sequence_parallel": NO_SEQUENCE},
    corrections=("rotary_tables_of_every_layer",),
    parameters=partial(gated_parameters, prefix="mistral"),
    forward=MistralForward,
    published=HuggingFace(
        model_type="mistral",
        read_config=_read_config,
        write_config=_write_config,
        renamed=((r"^mistral\.", "model."),),
        tokenizer=TokenizerFiles(
            sentencepiece=("tokenizer.model", "sentencepiece.bpe.model"),
            published={"tokenizer_class": "LlamaTokenizer"},
        ),
    ),
    head_std=xavier,  # its head is no layer that paddlenlp's _init_weights knows
    always_masked=True,
    reward_models=True,
)
