"""OPT: paddlenlp/transformers/opt/modeling.py."""

from collections.abc import Iterator

from launch.families.family import (
    NO_FLASH,
    NO_PIPELINE,
    NO_SEQUENCE,
    Family,
    HuggingFace,
    TokenizerFiles,
    Values,
    native,
    taken,
)
from launch.families.forward import Model
from launch.families.parameters import POSITION, WORD, Parameter, attention_heads, layers, linear, norm
from launch.tape.autograd import Tensor

LINEAR_LAYERS = ("q_proj", "k_proj", "v_proj", "out_proj", "linear1", "linear2")


def _parameters(config: dict) -> Iterator[Parameter]:
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    positions = config["max_position_embeddings"] + 2  # the first two rows stand for padding
    yield Parameter("opt.embeddings.word_embeddings.weight", (config["vocab_size"], hidden), WORD)
    yield Parameter("opt.embeddings.position_embeddings.weight", (positions, hidden), POSITION)
    for i in range(layers(config)):
        layer = f"opt.decoder.layers.{i}"
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from linear(f"{layer}.self_attn.{projection}", hidden, hidden)
        yield from linear(f"{layer}.linear1", hidden, ffn)
        yield from linear(f"{layer}.linear2", ffn, hidden)
        yield from norm(f"{layer}.norm1", hidden)
        yield from norm(f"{layer}.norm2", hidden)
    yield from norm("opt.decoder.final_layer_norm", hidden)


class OPTForward(Model):
    """OPT's forward pass."""

    def __init__(self, job, memory, weights):
        super().__init__(job, memory, weights)
        self.heads = attention_heads(job.config) // self.tensor_parallel
        self.head_size = self.hidden // attention_heads(job.config)
        self.hidden_dropout = self.probability("hidden_dropout_prob", 0.1)

    def embed(self) -> Tensor:
        """Return the input of the first layer."""
        ops = self.ops
        with self.memory.of("embedding"):
            x = self.word_embedding("opt.embeddings.word_embeddings")
            ids = Tensor((self.batch, self.length), 8, None)
            positions = ops.embedding(ids, self.weights["opt.embeddings.position_embeddings.weight"])
            out = ops.dropout(ops.add(x, positions), self.hidden_dropout)
            self.alive(x, positions)
            return out

    def layer(self, index: int, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of one layer."""
        name, ops = f"opt.decoder.layers.{index}", self.ops
        normed = self.layer_norm(f"{name}.norm1", x)
        with self.memory.of("attention"):
            attention = ops.dropout(self.attention(f"{name}.self_attn", normed, mask), self.hidden_dropout)
            self.alive(normed)
        x = self.residual(x, attention)
        normed = self.layer_norm(f"{name}.norm2", x)
        with self.memory.of("MLP"):
            inner = ops.relu(self.column(f"{name}.linear1", normed))
            self.alive(normed)
            mlp = ops.dropout(self.row(f"{name}.linear2", inner), self.hidden_dropout)
            self.alive(inner)
        return self.residual(x, mlp)

    def attention(self, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of the attention block."""
        ops = self.ops
        shape = (self.batch, self.length, self.heads, self.head_size)
        query, key, value = (
            ops.transpose(ops.reshape(self.column(f"{name}.{part}_proj", x), shape), (0, 2, 1, 3)) for part in "qkv"
        )
        product = ops.matmul(ops.scale(query), key, transpose_y=True)
        assert mask is not None, "exact attention always has a mask"
        product = ops.add(product, mask)
        weights = ops.softmax(product)
        weights = ops.dropout(weights, self.probability("attention_probs_dropout_prob", 0.1))
        out = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
        out = ops.reshape(out, (self.batch, self.length, self.heads * self.head_size))
        out = self.row(f"{name}.out_proj", out)
        self.alive(x, query, key, value, product, weights)
        return out

    def norm(self, x: Tensor) -> Tensor:
        """Return the output of the last norm."""
        return self.layer_norm("opt.decoder.final_layer_norm", x)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(x, self.weights["opt.embeddings.word_embeddings.weight"], True)


def _read_config(theirs: Values) -> dict:
    theirs.only(
        activation_function="relu",
        do_layer_norm_before=True,
        _remove_final_layer_norm=False,
        word_embed_proj_dim=theirs.get("hidden_size"),
        tie_word_embeddings=True,
        enable_bias=True,
        layer_norm_elementwise_affine=True,
    )
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
    return {
        "model_type": "opt",
        **theirs.take(*sizes),
        "intermediate_size": theirs.take("ffn_dim")["ffn_dim"],
        "word_embed_proj_dim": theirs.get("hidden_size"),
        "hidden_act": "relu",
        "normalize_before": True,
        "initializer_range": theirs.get("init_std", 0.02),
        "hidden_dropout_prob": theirs.get("dropout", 0.1),
        "attention_probs_dropout_prob": theirs.get("attention_dropout", 0.0),
    }


def _write_config(ours: dict) -> dict:
    return native("opt", "OPTForCausalLM") | {
        **taken(
            ours, "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"
        ),
        "ffn_dim": ours["intermediate_size"],
        "word_embed_proj_dim": ours["hidden_size"],
        "activation_function": "relu",
        "do_layer_norm_before": True,
        "init_std": ours.get("initializer_range", 0.02),
        "dropout": ours.get("hidden_dropout_prob", 0.1),
        "attention_dropout": ours.get("attention_probs_dropout_prob", 0.0),
    }


OPT = Family(
    name="opt",
    title="OPT",
    model_type="opt",
    config_class="OPTConfig",
    model_class="OPTForCausalLM",
    pipeline_class=None,
    tokenizer_class="GPTTokenizer",
    rehearsal_config="opt-rehearsal",
    linear_layers=LINEAR_LAYERS,
    prefix_postprocess=None,
    chat_template="plain",
    begins_chats=True,
    lacking={
        "pipeline_parallel": NO_PIPELINE,
        "sequence_parallel": NO_SEQUENCE,
        "flash_attention": NO_FLASH,
        "recompute": "its layers ignore the flag; a smaller micro batch with more accumulation works",
        "packing": "its positions are counted from the mask over the whole row; pad instead",
        "prefix": "its attention of paddlenlp takes no keys and values of a prefix; LoRA works",
    },
    corrections=("opt_untied_head", "opt_has_every_attribute", "opt_bfloat16_mask"),
    parameters=_parameters,
    forward=OPTForward,
    published=HuggingFace(
        model_type="opt",
        read_config=_read_config,
        write_config=_write_config,
        renamed=(
            (r"^opt\.embeddings\.word_embeddings\.", "model.decoder.embed_tokens."),
            (r"^opt\.embeddings\.position_embeddings\.", "model.decoder.embed_positions."),
            (r"\.linear1\.", ".fc1."),
            (r"\.linear2\.", ".fc2."),
            (r"\.norm1\.", ".self_attn_layer_norm."),
            (r"\.norm2\.", ".final_layer_norm."),
            (r"^opt\.", "model."),
        ),
        optional_prefix="model.",
        tokenizer=TokenizerFiles(),
    ),
    rotary=False,
)
