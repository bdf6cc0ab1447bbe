"""ChatGLM-6B: paddlenlp/transformers/chatglm/modeling.py."""

from collections.abc import Iterator

from launch.families.family import (
    FUSED_LINEAR,
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
    tokenizer_with_code,
    with_code,
    xavier,
)
from launch.families.forward import FLOAT32
from launch.families.glm import GLMForward, glm_layer
from launch.families.parameters import WORD, Parameter, layers, norm
from launch.tape.autograd import Tensor


def _parameters(config: dict) -> Iterator[Parameter]:
    hidden, ffn = config["hidden_size"], config["inner_hidden_size"]
    yield Parameter("chatglm.transformer.word_embeddings.weight", (config["vocab_size"], hidden), WORD)
    for i in range(layers(config)):
        yield from glm_layer(f"chatglm.transformer.layers.{i}", hidden, ffn)
    yield from norm("chatglm.transformer.final_layernorm", hidden)


class ChatGLMForward(GLMForward):
    """ChatGLM-6B. Activations are [length, batch, hidden]; residuals start from the norms' outputs."""

    prefix = "chatglm.transformer"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the activations between two layers."""
        return (self.length, self.batch, self.hidden)

    def embed(self) -> Tensor:
        """Return the input of the first layer."""
        with self.memory.of("embedding"):
            return self.ops.transpose(self.word_embedding(f"{self.prefix}.word_embeddings"), (1, 0, 2))

    def layer(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of one layer."""
        name, ops = f"{self.prefix}.layers.{index}", self.ops
        first_norm = self.layer_norm(f"{name}.input_layernorm", x)
        with self.memory.of("attention"):
            attention = self.attention(f"{name}.attention", first_norm, mask)
        with self.memory.of("residuals"):
            x = ops.add(ops.scale(first_norm), attention)
        second_norm = self.layer_norm(f"{name}.post_attention_layernorm", x)
        self.alive(first_norm)
        with self.memory.of("MLP"):
            inner = ops.gelu(self.column(f"{name}.mlp.dense_h_to_4h", second_norm))
            mlp = self.row(f"{name}.mlp.dense_4h_to_h", inner)
        with self.memory.of("residuals"):
            out = ops.add(ops.scale(second_norm), mlp)
        self.alive(x, attention, second_norm, inner)
        return out

    def attention(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of the attention block."""
        ops = self.ops
        mixed = self.column(f"{name}.query_key_value", x)
        mixed = ops.reshape(mixed, (self.length, self.batch, self.heads, 3 * self.head_size))
        query, key, value = ops.split(mixed, 3)
        query, key = self.rotate(query, key)
        key, value = self.each(lambda x: self.with_prefix(x, 0), key, value)
        query = ops.scale(query)
        flat = (self.batch * self.heads, self.head_size)
        query, key = ops.reshape(query, (self.length, *flat)), ops.reshape(key, (self.keys_length, *flat))
        scores = ops.matmul(ops.transpose(query, (1, 0, 2)), ops.transpose(key, (1, 2, 0)))
        scores = ops.reshape(scores, (self.batch, self.heads, self.length, self.keys_length))
        scores = ops.cast(scores, FLOAT32)
        scores = ops.scale(scores)
        assert mask is not None, "exact attention always has a mask"
        scores = ops.add(scores, mask)
        weights = ops.cast(ops.softmax(scores), self.item)
        value = ops.reshape(value, (self.keys_length, *flat))
        weights = ops.reshape(weights, (self.batch * self.heads, self.length, self.keys_length))
        context = ops.matmul(weights, ops.transpose(value, (1, 0, 2)))
        context = ops.reshape(context, (self.batch, self.heads, self.length, self.head_size))
        context = ops.transpose(context, (2, 0, 1, 3))
        context = ops.reshape(context, (self.length, self.batch, self.heads * self.head_size))
        out = self.row(f"{name}.dense", context)
        self.alive(x, mixed, query, key, value, scores, weights)
        return out

    def rotate(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Turn each half of a head by the positions of one of the two rows."""
        ops = self.ops
        query_halves, key_halves = ops.split(query, 2), ops.split(key, 2)
        turned = [(self._turn(one), self._turn(other)) for one, other in zip(query_halves, key_halves, strict=True)]
        rotated = ops.concat([one for one, _ in turned]), ops.concat([other for _, other in turned])
        self.alive(query, key, *query_halves, *key_halves, *(half for pair in turned for half in pair))
        return rotated

    def _turn(self, x: Tensor) -> Tensor:
        ops = self.ops
        angles = Tensor((self.length, self.batch, 1, x.shape[-1]), x.item, None)
        first, second = ops.split(x, 2)
        rotated = ops.concat([ops.scale(second), first])
        self.alive(second)
        out = ops.add(ops.multiply(x, angles), ops.multiply(rotated, angles))
        self.alive(x, rotated)
        return out

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits = self.head(x, self.weights[f"{self.prefix}.word_embeddings.weight"], True)
        return self.ops.transpose(logits, (1, 0, 2))


def _read_config(theirs: Values) -> dict:
    theirs.only(position_encoding_2d=True, quantization_bit=0, pre_seq_len=None)
    sizes = ("vocab_size", "hidden_size", "inner_hidden_size", "num_attention_heads", "max_sequence_length")
    return {
        "model_type": "chatglm",
        **theirs.take(*sizes),
        "num_hidden_layers": theirs.take("num_layers")["num_layers"],
        "layernorm_epsilon": theirs.get("layernorm_epsilon", 1e-5),
        "position_encoding_2d": True,
        **theirs.take("mask_token_id", "gmask_token_id"),
    }


def _write_config(ours: dict) -> dict:
    return with_code("chatglm", "ChatGLMConfig", "ChatGLMForConditionalGeneration") | {
        **taken(ours, "vocab_size", "hidden_size", "inner_hidden_size", "num_attention_heads", "max_sequence_length"),
        "num_layers": ours["num_hidden_layers"],
        **taken(ours, "layernorm_epsilon", "mask_token_id", "gmask_token_id"),
        "position_encoding_2d": True,
        "quantization_bit": 0,
    }


CHATGLM = Family(
    name="chatglm",
    title="ChatGLM-6B",
    model_type="chatglm",
    config_class="ChatGLMConfig",
    model_class="ChatGLMForCausalLM",
    pipeline_class=None,
    tokenizer_class="ChatGLMTokenizer",
    rehearsal_config="chatglm-rehearsal",
    linear_layers=FUSED_LINEAR,
    prefix_postprocess="chatglm_postprocess_past_key_value",
    chat_template="chatglm",
    attention="prefix",
    answer_marks=("[gMASK]", "<sop>"),
    lacking={
        "pretrain": PREFIX_LM,
        "pipeline_parallel": NO_PIPELINE,
        "sequence_parallel": NO_SEQUENCE,
        "packing": NO_PACKING,
    },
    corrections=("chatglm_loss",),
    parameters=_parameters,
    forward=ChatGLMForward,
    published=HuggingFace(
        model_type="chatglm",
        recognizes=lambda theirs: "ffn_hidden_size" not in theirs,  # both ChatGLMs have the same model_type
        read_config=_read_config,
        write_config=_write_config,
        renamed=((r"^chatglm\.", ""),),
        own_code=True,
        two_copies=True,
        tokenizer=TokenizerFiles(
            sentencepiece=("ice_text.model", "ice_text.model"),
            published=tokenizer_with_code("chatglm", "ChatGLMTokenizer"),
        ),
    ),
    head=Head(reads_length_first=True, gives_length_first=True),
    head_std=xavier,
    always_masked=True,
    weights_dtype_rotary=True,
)
