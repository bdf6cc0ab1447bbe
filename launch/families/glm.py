"""GLM and ChatGLM-6B: paddlenlp/transformers/glm and chatglm, modeling.py."""

from launch.families.forward import FLOAT32, Model
from launch.families.parameters import attention_heads
from launch.tape.autograd import Tensor


class GLM(Model):
    """GLM. Activations are [batch, length, hidden]; a detached view of each layer's output is kept by upstream."""

    prefix = "glm.transformer"

    def __init__(self, job, memory, weights):
        super().__init__(job, memory, weights)
        self.heads = attention_heads(job.config) // self.tensor_parallel
        self.head_size = self.hidden // attention_heads(job.config)
        self.outputs: list = []

    def prepare(self) -> Tensor | None:
        self.outputs = []
        with self.memory.of("attention"):
            return self.ops.new((self.batch, 1, self.length, self.keys_length), self.item)

    def embed(self) -> Tensor:
        ops = self.ops
        with self.memory.of("embedding"):
            x = self.word_embedding("glm.word_embeddings")
            for kind in ("position_embeddings", "block_position_embeddings"):
                ids = Tensor((self.batch, self.length), 8, None)
                x = ops.add(x, ops.embedding(ids, self.weights[f"{self.prefix}.{kind}.weight"]))
            x = ops.dropout(x, self.job.config.get("embedding_dropout_prob", 0.1))
            self.outputs.append(x.storage)
            return x

    def layer(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        name = f"{self.prefix}.layers.{index}"
        normed = self.layer_norm(f"{name}.input_layernorm", x)
        with self.memory.of("attention"):
            attention = self.attention(f"{name}.attention", normed, mask)
        x = self.residual(x, attention)
        normed = self.layer_norm(f"{name}.post_attention_layernorm", x)
        with self.memory.of("MLP"):
            mlp = self.mlp(f"{name}.mlp", normed)
        out = self.residual(x, mlp)
        if self.memory.recording:
            self.outputs.append(out.storage)
        return out

    def attention(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        ops, config = self.ops, self.job.config
        mixed = self.column(f"{name}.query_key_value", x)
        if self.tensor_parallel > 1:
            mixed = ops.reshape(mixed, (self.batch, self.length, self.heads, 3 * self.head_size))
            mixed = ops.transpose(mixed, (0, 2, 1, 3))
            query, key, value = ops.split(mixed, 3)
        else:
            parts = ops.split(mixed, 3)
            shape = (self.batch, self.length, self.heads, self.head_size)
            query, key, value = (ops.transpose(ops.reshape(one, shape), (0, 2, 1, 3)) for one in parts)
            del parts
        if config.get("attention_scale", 1.0) > 1.0:
            query = ops.scale(query)
        scores = ops.matmul(query, ops.scale(ops.transpose(key, (0, 1, 3, 2))))
        scores = ops.multiply(scores, mask)
        scores = ops.add(scores, ops.scale(ops.scale(mask)))
        weights = ops.softmax(scores)
        weights = ops.dropout(weights, config.get("attention_dropout_prob", 0.1))
        context = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
        context = ops.reshape(context, (self.batch, self.length, self.heads * self.head_size))
        out = self.row(f"{name}.dense", context)
        return ops.dropout(out, config.get("output_dropout_prob", 0.1))

    def mlp(self, name: str, x: Tensor) -> Tensor:
        inner = self.ops.gelu(self.column(f"{name}.dense_h_to_4h", x))
        out = self.row(f"{name}.dense_4h_to_h", inner)
        return self.ops.dropout(out, self.job.config.get("output_dropout_prob", 0.1))

    def norm(self, x: Tensor) -> Tensor:
        return self.layer_norm(f"{self.prefix}.final_layernorm", x)

    def logits(self, x: Tensor) -> Tensor:
        self.outputs = []
        return self.head(x, self.weights["glm.word_embeddings.weight"], True)


class ChatGLM(GLM):
    """ChatGLM-6B. Activations are [length, batch, hidden]; residuals start from the norms' outputs."""

    prefix = "chatglm.transformer"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length, self.batch, self.hidden)

    def embed(self) -> Tensor:
        with self.memory.of("embedding"):
            return self.ops.transpose(self.word_embedding(f"{self.prefix}.word_embeddings"), (1, 0, 2))

    def layer(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        name, ops = f"{self.prefix}.layers.{index}", self.ops
        normed = self.layer_norm(f"{name}.input_layernorm", x)
        with self.memory.of("attention"):
            attention = self.attention(f"{name}.attention", normed, mask)
        with self.memory.of("residuals"):
            x = ops.add(ops.scale(normed), attention)
        normed = self.layer_norm(f"{name}.post_attention_layernorm", x)
        with self.memory.of("MLP"):
            inner = ops.gelu(self.column(f"{name}.mlp.dense_h_to_4h", normed))
            mlp = self.row(f"{name}.mlp.dense_4h_to_h", inner)
        with self.memory.of("residuals"):
            return ops.add(ops.scale(normed), mlp)

    def attention(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        ops = self.ops
        mixed = self.column(f"{name}.query_key_value", x)
        mixed = ops.reshape(mixed, (self.length, self.batch, self.heads, 3 * self.head_size))
        query, key, value = ops.split(mixed, 3)
        query, key = self.rotate(query, key)
        key, value = self.with_prefix(key, 0), self.with_prefix(value, 0)
        query = ops.scale(query)
        flat = (self.batch * self.heads, self.head_size)
        query, key = ops.reshape(query, (self.length, *flat)), ops.reshape(key, (self.keys_length, *flat))
        scores = ops.matmul(ops.transpose(query, (1, 0, 2)), ops.transpose(key, (1, 2, 0)))
        scores = ops.reshape(scores, (self.batch, self.heads, self.length, self.keys_length))
        scores = ops.cast(scores, FLOAT32)
        scores = ops.scale(scores)
        scores = ops.add(scores, mask)
        weights = ops.cast(ops.softmax(scores), self.item)
        value = ops.reshape(value, (self.keys_length, *flat))
        weights = ops.reshape(weights, (self.batch * self.heads, self.length, self.keys_length))
        context = ops.matmul(weights, ops.transpose(value, (1, 0, 2)))
        context = ops.reshape(context, (self.batch, self.heads, self.length, self.head_size))
        context = ops.transpose(context, (2, 0, 1, 3))
        context = ops.reshape(context, (self.length, self.batch, self.heads * self.head_size))
        return self.row(f"{name}.dense", context)

    def rotate(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Each half of a head by the positions of one of the two rows."""
        ops = self.ops
        query_halves, key_halves = ops.split(query, 2), ops.split(key, 2)
        turned = [(self._turn(one), self._turn(other)) for one, other in zip(query_halves, key_halves, strict=True)]
        query = ops.concat([one for one, _ in turned])
        key = ops.concat([other for _, other in turned])
        return query, key

    def _turn(self, x: Tensor) -> Tensor:
        ops = self.ops
        angles = Tensor((self.length, self.batch, 1, x.shape[-1]), x.item, None)
        first, second = ops.split(x, 2)
        rotated = ops.concat([ops.scale(second), first])
        del first, second
        return ops.add(ops.multiply(x, angles), ops.multiply(rotated, angles))

    def logits(self, x: Tensor) -> Tensor:
        logits = self.head(x, self.weights[f"{self.prefix}.word_embeddings.weight"], True)
        return self.ops.transpose(logits, (1, 0, 2))
