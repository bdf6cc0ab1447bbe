"""ChatGLM2-6B: paddlenlp/transformers/chatglm_v2/modeling.py. Activations are [length, batch, hidden]."""

from collections.abc import Iterator

from launch.families.family import (
    FUSED_LINEAR,
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
)
from launch.tape.autograd import Tensor


def _parameters(config: dict) -> Iterator[Parameter]:
    hidden, ffn = config["hidden_size"], config["ffn_hidden_size"]
    key_value = config["kv_channels"] * key_value_heads(config)
    prefix = "chatglm_v2"
    yield Parameter(f"{prefix}.embedding.word_embeddings.weight", (config["vocab_size"], hidden), WORD)
    for i in range(layers(config)):
        layer = f"{prefix}.encoder.layers.{i}"
        yield from norm(f"{layer}.input_layernorm", hidden, bias=False)
        yield from linear(f"{layer}.self_attention.query_key_value", hidden, hidden + 2 * key_value)
        yield from linear(f"{layer}.self_attention.dense", hidden, hidden, bias=False)
        yield from norm(f"{layer}.post_attention_layernorm", hidden, bias=False)
        yield from linear(f"{layer}.mlp.dense_h_to_4h", hidden, 2 * ffn, bias=False)
        yield from linear(f"{layer}.mlp.dense_4h_to_h", ffn, hidden, bias=False)
    yield from norm(f"{prefix}.encoder.final_layernorm", hidden, bias=False)
    yield Parameter(f"{prefix}.output_layer.weight", (hidden, config["vocab_size"]), HEAD)


class ChatGLM2Forward(Model):
    """ChatGLM2's forward pass."""

    def __init__(self, job, memory, weights):
        super().__init__(job, memory, weights)
        self.heads = attention_heads(job.config) // self.tensor_parallel
        self.key_value_heads = key_value_heads(job.config) // self.tensor_parallel
        self.head_size = head_size(job.config)
        self.scales_by_layer = job.config.get("apply_query_key_layer_scaling", True)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the activations between two layers."""
        if self.job.sequence_parallel:
            return super().shape
        return (self.length, self.batch, self.hidden)

    def tables(self, layers: int) -> dict[str, int]:
        """Return the bytes of the frequencies of all positions, cosine and sine, once."""
        return {}

    def embed(self) -> Tensor:
        """Return the input of the first layer."""
        with self.memory.of("embedding"):
            x = self.word_embedding("chatglm_v2.embedding.word_embeddings")
            return x if self.job.sequence_parallel else self.ops.transpose(x, (1, 0, 2))

    def layer(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of one layer."""
        name = f"chatglm_v2.encoder.layers.{index}"
        first_norm = self.rms_norm(f"{name}.input_layernorm", x, cast_first=False)
        with self.memory.of("attention"):
            attention = self.attention_block(f"{name}.self_attention", first_norm, mask)
        x = self.residual(x, attention)
        second_norm = self.rms_norm(f"{name}.post_attention_layernorm", x, cast_first=False)
        self.alive(first_norm)
        with self.memory.of("MLP"):
            mlp = self.mlp(f"{name}.mlp", second_norm)
        out = self.residual(x, mlp)
        self.alive(attention, second_norm)
        return out

    def attention(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of the attention block."""
        ops = self.ops
        mixed = self.column(f"{name}.query_key_value", x)
        widths = [self.heads, self.key_value_heads, self.key_value_heads]
        query, key, value = ops.split_at(mixed, [count * self.head_size for count in widths])
        rows = (self.length, self.batch)
        query = ops.reshape(query, (*rows, self.heads, self.head_size))
        key = ops.reshape(key, (*rows, self.key_value_heads, self.head_size))
        value = ops.reshape(value, (*rows, self.key_value_heads, self.head_size))
        query, key = self.each(self.rotate, query, key)
        key, value = self.each(lambda x: self.with_prefix(x, 0), key, value)
        key, value = self.each(lambda x: ops.tile(x, (*x.shape[:2], self.heads, self.head_size)), key, value)
        if self.job.flash_attention:
            query, key, value = (ops.transpose(x, (1, 0, 2, 3)) for x in (query, key, value))
            context = ops.flash_attention(query, key, value, mask)
            context = ops.reshape(context, (*self._rows, self.heads * self.head_size))
        else:
            context = self.core_block(query, key, value, mask)
        out = self.row(f"{name}.dense", context)
        self.alive(x, mixed, query, key, value)
        return out

    @property
    def _rows(self) -> tuple[int, ...]:
        return (self.length * self.batch,) if self.job.sequence_parallel else (self.length, self.batch)

    def rotate(self, x: Tensor) -> Tensor:
        """Return x with half of each head turned, the other half passed on."""
        ops = self.ops
        half = (*x.shape[:-1], x.shape[-1] // 2)
        passed = ops.slice(x, half)
        pairs = ops.slice(x, (*half[:-1], half[-1] // 2, 2))
        first = self._turn(pairs)
        second = self._turn(pairs)
        out = ops.concat([first, second])
        out = ops.concat([ops.reshape(out, half), passed])
        self.alive(x, first, second)
        return out

    def _turn(self, pairs: Tensor) -> Tensor:
        ops = self.ops
        angles = Tensor((self.length, 1, 1, pairs.shape[-2]), pairs.item, None)
        first, second = ops.slice(pairs, pairs.shape[:-1]), ops.slice(pairs, pairs.shape[:-1])
        return ops.add(ops.multiply(first, angles), ops.multiply(second, angles))

    def core(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return the attention of queries, keys and values."""
        ops = self.ops
        flat = (self.batch * self.heads, self.head_size)
        query, key = ops.reshape(query, (self.length, *flat)), ops.reshape(key, (self.keys_length, *flat))
        result = ops.scale(ops.matmul(ops.transpose(query, (1, 0, 2)), ops.transpose(key, (1, 2, 0))))
        scores = ops.reshape(result, (self.batch, self.heads, self.length, self.keys_length))
        scores = ops.cast(scores, FLOAT32)
        if self.scales_by_layer:
            scores = ops.scale(scores)
        assert mask is not None, "exact attention always has a mask"
        scores = ops.add(scores, mask)
        weights = ops.cast(ops.softmax(ops.cast(scores, FLOAT32)), self.item)
        value = ops.reshape(value, (self.keys_length, *flat))
        weights = ops.reshape(weights, (self.batch * self.heads, self.length, self.keys_length))
        context = ops.matmul(weights, ops.transpose(value, (1, 0, 2)))
        context = ops.reshape(context, (self.batch, self.heads, self.length, self.head_size))
        context = ops.transpose(context, (2, 0, 1, 3))
        out = ops.reshape(context, (*self._rows, self.heads * self.head_size))
        self.alive(result, scores, weights)
        return out

    def mlp(self, name: str, x: Tensor) -> Tensor:
        """Return the output of the MLP."""
        ops = self.ops
        inner = self.column(f"{name}.dense_h_to_4h", x)
        half = (*inner.shape[:-1], inner.shape[-1] // 2)
        up, gate = ops.slice(inner, half), ops.slice(inner, half)
        inner = ops.multiply(ops.silu(up), gate)
        out = self.row(f"{name}.dense_4h_to_h", inner)
        self.alive(x, up)  # a view of all that the first product gave
        return out

    def norm(self, x: Tensor) -> Tensor:
        """Return the output of the last norm."""
        return self.rms_norm("chatglm_v2.encoder.final_layernorm", x, cast_first=False)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits = self.head(x, self.weights["chatglm_v2.output_layer.weight"], False)
        return self.ops.transpose(logits, (1, 0, 2))

    def for_loss(self, logits: Tensor) -> Tensor:
        """Return the logits flattened for the criterion, which copies transposed ones."""
        return self.ops.reshape(logits, (self.batch * self.length, logits.shape[-1]))


def _read_config(theirs: Values) -> dict:
    theirs.only(
        rmsnorm=True,
        post_layer_norm=True,
        add_bias_linear=False,
        apply_residual_connection_post_layernorm=False,
        original_rope=True,
        rope_ratio=1,
        quantization_bit=0,
        pre_seq_len=None,
    )
    heads = theirs.take("num_attention_heads")["num_attention_heads"]
    grouped = theirs.get("multi_query_attention", False)
    return {
        "model_type": "chatglm_v2",
        "vocab_size": theirs.take("padded_vocab_size")["padded_vocab_size"],
        **theirs.take("hidden_size", "ffn_hidden_size", "kv_channels"),
        "multi_query_group_num": theirs.take("multi_query_group_num")["multi_query_group_num"] if grouped else heads,
        "num_hidden_layers": theirs.take("num_layers")["num_layers"],
        "num_attention_heads": heads,
        "max_sequence_length": theirs.take("seq_length")["seq_length"],
        "layernorm_epsilon": theirs.get("layernorm_epsilon", 1e-5),
        "add_qkv_bias": theirs.take("add_qkv_bias")["add_qkv_bias"],
        "add_bias_linear": False,
        "rmsnorm": True,
    }


def _write_config(ours: dict) -> dict:
    groups = ours["multi_query_group_num"]
    return with_code("chatglm", "ChatGLMConfig", "ChatGLMForConditionalGeneration") | {
        "padded_vocab_size": ours["vocab_size"],
        **taken(ours, "hidden_size", "ffn_hidden_size", "kv_channels", "num_attention_heads", "layernorm_epsilon"),
        "num_layers": ours["num_hidden_layers"],
        "multi_query_attention": groups != ours["num_attention_heads"],
        "multi_query_group_num": groups,
        "seq_length": ours["max_sequence_length"],
        "add_qkv_bias": ours["add_qkv_bias"],
        "add_bias_linear": False,
        "apply_residual_connection_post_layernorm": False,
        "original_rope": True,
        "post_layer_norm": True,
        "quantization_bit": 0,
        "rmsnorm": True,
    }


CHATGLM_V2 = Family(
    name="chatglm_v2",
    title="ChatGLM2-6B",
    model_type="chatglm_v2",
    config_class="ChatGLMv2Config",
    model_class="ChatGLMv2ForCausalLM",
    pipeline_class="ChatGLMv2ForCausalLMPipe",
    tokenizer_class="ChatGLMv2Tokenizer",
    rehearsal_config="chatglm2-rehearsal",
    linear_layers=FUSED_LINEAR,
    prefix_postprocess="chatglm_postprocess_past_key_value",
    chat_template="chatglm_v2",
    begins_chats=True,
    # Its makers encode an answer apart from all before it: ptuning/main.py of THUDM/ChatGLM2-6B, a_ids and b_ids.
    encodes_apart=True,
    corrections=(
        "generation_mask",
        "chatglm_v2_flash_layout",
        "chatglm_v2_split",
        "chatglm_v2_sequence_length",
        "chatglm_v2_pipeline_names",
        "chatglm_v2_pipe_positions",
        "chatglm_v2_ignores_prefix",
    ),
    parameters=_parameters,
    forward=ChatGLM2Forward,
    published=HuggingFace(
        model_type="chatglm",
        recognizes=lambda theirs: "ffn_hidden_size" in theirs,  # both ChatGLMs have the same model_type
        read_config=_read_config,
        write_config=_write_config,
        renamed=((r"^chatglm_v2\.", "transformer."),),
        own_code=True,
        tokenizer=TokenizerFiles(
            sentencepiece=("tokenizer.model", "tokenizer.model"),
            # Else the class of paddlenlp finds its marks sop and eop within words: "people" would be p, eop, le.
            settings={"encode_special_tokens": False},
            published=tokenizer_with_code("chatglm", "ChatGLMTokenizer"),
        ),
    ),
    head=Head("chatglm_v2.output_layer", reads_length_first=True),
    head_std=xavier,
    always_masked=True,
    weights_dtype_rotary=True,
    flash_dropout=True,
    refused=("pipeline_full_recompute",),
)
