"""ChatGLM2: paddlenlp/transformers/chatglm_v2/modeling.py. Activations are [length, batch, hidden]."""

from launch.families.forward import FLOAT32, Model
from launch.families.parameters import attention_heads, head_size, key_value_heads
from launch.tape.autograd import Tensor


class ChatGLM2(Model):
    def __init__(self, job, memory, weights):
        super().__init__(job, memory, weights)
        self.heads = attention_heads(job.config) // self.tensor_parallel
        self.key_value_heads = key_value_heads(job.config) // self.tensor_parallel
        self.head_size = head_size(job.config)
        self.scales_by_layer = job.config.get("apply_query_key_layer_scaling", True)

    @property
    def shape(self) -> tuple[int, ...]:
        if self.job.sequence_parallel:
            return super().shape
        return (self.length, self.batch, self.hidden)

    def tables(self, layers: int) -> dict[str, int]:
        """The frequencies of all positions, cosine and sine, once."""
        return {}

    def prepare(self) -> Tensor | None:
        with self.memory.of("attention"):
            return self.ops.new((self.batch, 1, self.length, self.keys_length), self.item)

    def embed(self) -> Tensor:
        with self.memory.of("embedding"):
            x = self.word_embedding("chatglm_v2.embedding.word_embeddings")
            return x if self.job.sequence_parallel else self.ops.transpose(x, (1, 0, 2))

    def layer(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        name = f"chatglm_v2.encoder.layers.{index}"
        normed = self.rms_norm(f"{name}.input_layernorm", x, cast_first=False)
        with self.memory.of("attention"):
            attention = self.attention_block(f"{name}.self_attention", normed, mask)
        x = self.residual(x, attention)
        normed = self.rms_norm(f"{name}.post_attention_layernorm", x, cast_first=False)
        with self.memory.of("MLP"):
            mlp = self.mlp(f"{name}.mlp", normed)
        return self.residual(x, mlp)

    def attention(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        ops = self.ops
        mixed = self.column(f"{name}.query_key_value", x)
        widths = [self.heads, self.key_value_heads, self.key_value_heads]
        query, key, value = ops.split_at(mixed, [count * self.head_size for count in widths])
        rows = (self.length, self.batch)
        query = ops.reshape(query, (*rows, self.heads, self.head_size))
        key = ops.reshape(key, (*rows, self.key_value_heads, self.head_size))
        value = ops.reshape(value, (*rows, self.key_value_heads, self.head_size))
        query, key = self.rotate(query), self.rotate(key)
        key, value = self.with_prefix(key, 0), self.with_prefix(value, 0)
        key, value = (ops.tile(one, (*one.shape[:2], self.heads, self.head_size)) for one in (key, value))
        if self.job.flash_attention:
            query, key, value = (ops.transpose(one, (1, 0, 2, 3)) for one in (query, key, value))
            context = ops.flash_attention(query, key, value)
            context = ops.reshape(context, (*self._rows, self.heads * self.head_size))
        else:
            context = self.core_block(query, key, value, mask)
        return self.row(f"{name}.dense", context)

    @property
    def _rows(self) -> tuple[int, ...]:
        return (self.length * self.batch,) if self.job.sequence_parallel else (self.length, self.batch)

    def rotate(self, x: Tensor) -> Tensor:
        """Half of each head is turned, the other half passed on."""
        ops = self.ops
        half = (*x.shape[:-1], x.shape[-1] // 2)
        passed = ops.slice(x, half)
        pairs = ops.slice(x, (*half[:-1], half[-1] // 2, 2))
        first = self._turn(pairs)
        second = self._turn(pairs)
        out = ops.concat([first, second])
        out = ops.reshape(out, half)
        return ops.concat([out, passed])

    def _turn(self, pairs: Tensor) -> Tensor:
        ops = self.ops
        angles = Tensor((self.length, 1, 1, pairs.shape[-2]), pairs.item, None)
        one = ops.slice(pairs, pairs.shape[:-1])
        other = ops.slice(pairs, pairs.shape[:-1])
        return ops.add(ops.multiply(one, angles), ops.multiply(other, angles))

    def core(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        ops = self.ops
        flat = (self.batch * self.heads, self.head_size)
        query, key = ops.reshape(query, (self.length, *flat)), ops.reshape(key, (self.keys_length, *flat))
        result = ops.scale(ops.matmul(ops.transpose(query, (1, 0, 2)), ops.transpose(key, (1, 2, 0))))
        scores = ops.reshape(result, (self.batch, self.heads, self.length, self.keys_length))
        scores = ops.cast(scores, FLOAT32)
        if self.scales_by_layer:
            scores = ops.scale(scores)
        scores = ops.add(scores, mask)
        weights = ops.cast(ops.softmax(ops.cast(scores, FLOAT32)), self.item)
        value = ops.reshape(value, (self.keys_length, *flat))
        weights = ops.reshape(weights, (self.batch * self.heads, self.length, self.keys_length))
        context = ops.matmul(weights, ops.transpose(value, (1, 0, 2)))
        context = ops.reshape(context, (self.batch, self.heads, self.length, self.head_size))
        context = ops.transpose(context, (2, 0, 1, 3))
        return ops.reshape(context, (*self._rows, self.heads * self.head_size))

    def mlp(self, name: str, x: Tensor) -> Tensor:
        ops = self.ops
        inner = self.column(f"{name}.dense_h_to_4h", x)
        half = (*inner.shape[:-1], inner.shape[-1] // 2)
        up, gate = ops.slice(inner, half), ops.slice(inner, half)
        inner = ops.multiply(ops.silu(up), gate)
        return self.row(f"{name}.dense_4h_to_h", inner)

    def norm(self, x: Tensor) -> Tensor:
        return self.rms_norm("chatglm_v2.encoder.final_layernorm", x, cast_first=False)

    def logits(self, x: Tensor) -> Tensor:
        logits = self.head(x, self.weights["chatglm_v2.output_layer.weight"], False)
        return self.ops.transpose(logits, (1, 0, 2))

    def for_loss(self, logits: Tensor) -> Tensor:
        """The criterion flattens them, which copies what was transposed."""
        return self.ops.reshape(logits, (self.batch * self.length, logits.shape[-1]))
