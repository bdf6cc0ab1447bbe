"""OPT: paddlenlp/transformers/opt/modeling.py."""

from launch.families.forward import Model
from launch.families.parameters import attention_heads
from launch.tape.autograd import Tensor


class OPT(Model):
    def __init__(self, job, memory, weights):
        super().__init__(job, memory, weights)
        self.heads = attention_heads(job.config) // self.tensor_parallel
        self.head_size = self.hidden // attention_heads(job.config)
        self.dropout = job.config.get("hidden_dropout_prob", 0.1)

    def prepare(self) -> Tensor | None:
        with self.memory.of("attention"):
            return self.ops.new((self.batch, 1, self.length, self.length), self.item)

    def embed(self) -> Tensor:
        ops = self.ops
        with self.memory.of("embedding"):
            x = self.word_embedding("opt.embeddings.word_embeddings")
            ids = Tensor((self.batch, self.length), 8, None)
            positions = ops.embedding(ids, self.weights["opt.embeddings.position_embeddings.weight"])
            return ops.dropout(ops.add(x, positions), self.dropout)

    def layer(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        name, ops = f"opt.decoder.layers.{index}", self.ops
        residual = x
        x = self.layer_norm(f"{name}.norm1", x)
        with self.memory.of("attention"):
            x = ops.dropout(self.attention(f"{name}.self_attn", x, mask), self.dropout)
        x = self.residual(residual, x)
        residual = x
        x = self.layer_norm(f"{name}.norm2", x)
        with self.memory.of("MLP"):
            x = ops.relu(self.column(f"{name}.linear1", x))
            x = ops.dropout(self.row(f"{name}.linear2", x), self.dropout)
        return self.residual(residual, x)

    def attention(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        ops = self.ops
        shape = (self.batch, self.length, self.heads, self.head_size)
        query, key, value = (
            ops.transpose(ops.reshape(self.column(f"{name}.{one}_proj", x), shape), (0, 2, 1, 3)) for one in "qkv"
        )
        product = ops.matmul(ops.scale(query), key, transpose_y=True)
        product = ops.add(product, mask)
        weights = ops.softmax(product)
        weights = ops.dropout(weights, self.job.config.get("attention_probs_dropout_prob", 0.1))
        out = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
        out = ops.reshape(out, (self.batch, self.length, self.heads * self.head_size))
        return self.row(f"{name}.out_proj", out)

    def norm(self, x: Tensor) -> Tensor:
        return self.layer_norm("opt.decoder.final_layer_norm", x)

    def logits(self, x: Tensor) -> Tensor:
        return self.head(x, self.weights["opt.embeddings.word_embeddings.weight"], True)
