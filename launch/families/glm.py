"""GLM: paddlenlp/transformers/glm/modeling.py."""

from collections.abc import Iterator

from launch.families.family import (
    FUSED_LINEAR,
    NO_FLASH,
    NO_PACKING,
    NO_PIPELINE,
    NO_SEQUENCE,
    PREFIX_LM,
    Family,
    Head,
    HuggingFace,
    TokenizerFiles,
    Values,
    taken,
    with_code,
)
from launch.families.forward import Model
from launch.families.parameters import POSITION, WORD, Parameter, attention_heads, layers, linear, norm
from launch.tape.autograd import Storage, Tensor


def _parameters(config: dict) -> Iterator[Parameter]:
    hidden = config["hidden_size"]
    positions = (config["max_sequence_length"] + 1, hidden)
    yield Parameter("glm.word_embeddings.weight", (config["vocab_size"], hidden), WORD)
    yield Parameter("glm.transformer.position_embeddings.weight", positions, POSITION)
    yield Parameter("glm.transformer.block_position_embeddings.weight", positions, POSITION)
    for i in range(layers(config)):
        yield from glm_layer(f"glm.transformer.layers.{i}", hidden, 4 * hidden)
    yield from norm("glm.transformer.final_layernorm", hidden)


def glm_layer(layer: str, hidden: int, ffn: int) -> Iterator[Parameter]:
    """Yield the parameters of one layer."""
    yield from norm(f"{layer}.input_layernorm", hidden)
    yield from linear(f"{layer}.attention.query_key_value", hidden, 3 * hidden)
    yield from linear(f"{layer}.attention.dense", hidden, hidden)
    yield from norm(f"{layer}.post_attention_layernorm", hidden)
    yield from linear(f"{layer}.mlp.dense_h_to_4h", hidden, ffn)
    yield from linear(f"{layer}.mlp.dense_4h_to_h", ffn, hidden)


class GLMForward(Model):
    """GLM. Activations are [batch, length, hidden]; a detached view of each layer's output is kept by upstream."""

    prefix = "glm.transformer"

    def __init__(self, job, memory, weights):
        super().__init__(job, memory, weights)
        self.heads = attention_heads(job.config) // self.tensor_parallel
        self.head_size = self.hidden // attention_heads(job.config)
        self.outputs: list[Tensor] = []

    def kept(self) -> list[Storage]:
        """Return what the model keeps of the last forward pass until the next."""
        return [*super().kept(), *(x.storage for x in self.outputs if x.storage)]

    def _drop_outputs(self) -> None:
        self.alive(*self.outputs)
        self.outputs = []

    def prepare(self) -> Tensor | None:
        """Return the mask that all layers share."""
        self._drop_outputs()
        return super().prepare()

    def embed(self) -> Tensor:
        """Return the input of the first layer."""
        ops = self.ops
        with self.memory.of("embedding"):
            x = self.word_embedding("glm.word_embeddings")
            for kind in ("position_embeddings", "block_position_embeddings"):
                ids = Tensor((self.batch, self.length), 8, None)
                x = ops.add(x, ops.embedding(ids, self.weights[f"{self.prefix}.{kind}.weight"]))
            x = ops.dropout(x, self.job.config.get("embedding_dropout_prob", 0.1))
            self.outputs.append(x)
            return x

    def layer(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of one layer."""
        name = f"{self.prefix}.layers.{index}"
        first_norm = self.layer_norm(f"{name}.input_layernorm", x)
        with self.memory.of("attention"):
            attention = self.attention(f"{name}.attention", first_norm, mask)
        x = self.residual(x, attention)
        second_norm = self.layer_norm(f"{name}.post_attention_layernorm", x)
        self.alive(first_norm)
        with self.memory.of("MLP"):
            mlp = self.mlp(f"{name}.mlp", second_norm)
        out = self.residual(x, mlp)
        self.alive(attention, second_norm)
        if self.memory.recording:
            self.outputs.append(out)
        return out

    def attention(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of the attention block."""
        ops, config = self.ops, self.job.config
        mixed = self.column(f"{name}.query_key_value", x)
        if self.tensor_parallel > 1:
            mixed = ops.reshape(mixed, (self.batch, self.length, self.heads, 3 * self.head_size))
            mixed = ops.transpose(mixed, (0, 2, 1, 3))
            query, key, value = ops.split(mixed, 3)
        else:
            parts = ops.split(mixed, 3)
            shape = (self.batch, self.length, self.heads, self.head_size)
            query, key, value = (ops.transpose(ops.reshape(part, shape), (0, 2, 1, 3)) for part in parts)
        if config.get("attention_scale", 1.0) > 1.0:
            query = ops.scale(query)
        scores = ops.matmul(query, ops.scale(ops.transpose(key, (0, 1, 3, 2))))
        assert mask is not None, "prepare() makes one"
        scores = ops.multiply(scores, mask)
        scores = ops.add(scores, ops.scale(ops.scale(mask)))
        weights = ops.softmax(scores)
        weights = ops.dropout(weights, config.get("attention_dropout_prob", 0.1))
        context = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
        context = ops.reshape(context, (self.batch, self.length, self.heads * self.head_size))
        out = ops.dropout(self.row(f"{name}.dense", context), config.get("output_dropout_prob", 0.1))
        self.alive(x, mixed, query, key, value, scores, weights, context)
        return out

    def mlp(self, name: str, x: Tensor) -> Tensor:
        """Return the output of the MLP."""
        inner = self.ops.gelu(self.column(f"{name}.dense_h_to_4h", x))
        out = self.row(f"{name}.dense_4h_to_h", inner)
        out = self.ops.dropout(out, self.job.config.get("output_dropout_prob", 0.1))
        self.alive(x, inner)
        return out

    def norm(self, x: Tensor) -> Tensor:
        """Return the output of the last norm."""
        return self.layer_norm(f"{self.prefix}.final_layernorm", x)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits."""
        self._drop_outputs()
        return self.head(x, self.weights["glm.word_embeddings.weight"], True)


def _read_config(theirs: Values) -> dict:
    """Return our configuration of THUDM/glm-*.

    transformers' own "glm" is GLM-4, another model, which has an intermediate_size.
    """
    theirs.only(intermediate_size=None, relative_encoding=False, block_position_encoding=True)
    return {
        "model_type": "glm",
        **theirs.take("vocab_size", "hidden_size", "num_layers", "num_attention_heads", "max_sequence_length"),
        "layernorm_epsilon": theirs.get("layernorm_epsilon", 1e-5),
        "initializer_range": theirs.get("initializer_range", 0.02),
        "block_position_encoding": True,
        "attention_scale": theirs.get("attention_scale", 1.0),
        "output_predict": True,
        "embedding_dropout_prob": theirs.get("embedding_dropout_prob", 0.1),
        "attention_dropout_prob": theirs.get("attention_dropout_prob", 0.1),
        "output_dropout_prob": theirs.get("output_dropout_prob", 0.1),
    }


def _write_config(ours: dict) -> dict:
    sizes = ("vocab_size", "hidden_size", "num_layers", "num_attention_heads", "max_sequence_length")
    others = ("layernorm_epsilon", "initializer_range", "attention_scale")
    dropouts = ("embedding_dropout_prob", "attention_dropout_prob", "output_dropout_prob")
    return with_code("glm", "GLMConfig", "GLMForConditionalGeneration") | {
        **taken(ours, *sizes, *others, *dropouts),
        "block_position_encoding": True,
    }


GLM = Family(
    name="glm",
    title="GLM",
    model_type="glm",
    config_class="GLMConfig",
    model_class="GLMForConditionalGeneration",
    pipeline_class=None,
    tokenizer_class="GLMTokenizer",
    rehearsal_config="glm-rehearsal",
    linear_layers=FUSED_LINEAR,
    prefix_postprocess=None,
    chat_template="plain",
    begins_chats=True,
    attention="prefix",
    answer_marks=("[gMASK]", "<|endoftext|>", "<|startofpiece|>"),
    answer_end="<|endofpiece|>",
    lacking={
        "pretrain": PREFIX_LM,
        "pipeline_parallel": NO_PIPELINE,
        "sequence_parallel": NO_SEQUENCE,
        "flash_attention": NO_FLASH,
        "packing": NO_PACKING,
        "prefix": "its cache holds hidden states, not the keys and values that a prefix is made of; LoRA works",
    },
    corrections=("glm_tokenizers_unknown", "glm_head", "glm_loss", "glm_split"),
    parameters=_parameters,
    forward=GLMForward,
    published=HuggingFace(
        model_type="glm",
        read_config=_read_config,
        write_config=_write_config,
        optional_prefix="glm.",
        own_code=True,
        tokenizer=TokenizerFiles(copied=("vocab.json", "merges.txt", "cog-pretrain.model", "vocab.txt")),
    ),
    head=Head("glm.head"),
    rotary=False,
    mask_dtype="float32",
    mask_covers_answer=True,
    refused=("stage3", "fp32_norms_and_head"),
)
