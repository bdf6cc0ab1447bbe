"""What the fast pieces leave to the stock code, and what they leave alone; prints one JSON object.

    python tests/cpu/fallbacks.py

Started by tests/cpu/test_kernels.py. A difference is the largest absolute one; 0.0 is equal to the bit.
"""

import json
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from launch.cpu.settings import prepare  # noqa: E402

prepare("auto", processes=1)

import paddle  # noqa: E402
import paddlenlp.transformers as families  # noqa: E402
from paddlenlp.transformers.llama import modeling  # noqa: E402

from launch.cpu.attention import (  # noqa: E402
    ByShape,  # noqa: E402
    CausalAttention,
    RotaryEmbedding,
    replace_attention,
    replace_mask,
    replace_rotary,
)
from launch.cpu.kernels import apply, replace_rms_norm  # noqa: E402
from launch.upstream import correct  # noqa: E402
from tests.cpu.small_model import batch, model  # noqa: E402


def difference(a: paddle.Tensor, b: paddle.Tensor) -> float:
    return (a - b).abs().max().item()


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs)


def against_stock(configuration=None, **call) -> dict:
    """One call of a stock model, and of one with attention and rotary embedding replaced, the rest stock.

    Returns the largest difference of their logits, and how many of its two layers left each piece to stock.
    """
    configuration = {"num_hidden_layers": 2, **(configuration or {})}
    ids = batch(1)[:, :-1]
    stock, fast = model(**configuration), model(**configuration)
    stock_attention = Counted(modeling.scaled_dot_product_attention)
    stock_rotary = Counted(modeling.apply_rotary_pos_emb)
    embedding = RotaryEmbedding(stock_rotary)
    replace_mask(fast.llama)
    for layer in fast.llama.layers:
        layer.self_attn.attn_func = stock_attention
        replace_attention(layer.self_attn, ByShape())
        replace_rotary(layer.self_attn, embedding)
    return {
        "difference": difference(stock(ids, **call)[0], fast(ids, **call)[0]),
        "stock_attention": stock_attention.calls,
        "stock_rotary": stock_rotary.calls,
    }


def calls_against_stock() -> dict[str, dict]:
    padding = paddle.ones([4, 32], dtype="int64")
    padding[1, 20:] = 0
    by_row = (paddle.arange(32) + paddle.arange(4).unsqueeze(1)) % 32
    own_mask = paddle.tril(paddle.ones([4, 1, 32, 32], dtype="bool"), diagonal=-1)
    own_mask[:, :, 0, 0] = True
    return {
        "plain": against_stock(),
        "grouped_heads": against_stock({"num_key_value_heads": 2}),
        "mask_of_ones": against_stock(attention_mask=paddle.ones([4, 32], dtype="int64")),
        "padding": against_stock(attention_mask=padding),
        "mask_4d": against_stock(attention_mask=own_mask),
        "positions_by_row": against_stock(position_ids=by_row),
        "alibi": against_stock({"alibi": True}),
        "flash_attention": against_stock({"use_flash_attention": True}),
        "output_attentions": against_stock(output_attentions=True),
    }


def float64_norm() -> float:
    norm = modeling.LlamaRMSNorm(model().config).to(dtype="float64")
    x = paddle.randn([4, 64]).astype("float64")
    stock = norm(x)
    replace_rms_norm(norm)
    return difference(stock, norm(x))


def other_model_changed() -> float:
    ids, other = batch(2)[:, :-1], model()
    before = other(ids)[0]
    apply(model(seed=1))
    return difference(before, other(ids)[0])


def generated_equal() -> bool:
    ids = batch(3)[:, :9]
    mask = paddle.ones_like(ids)
    call = dict(attention_mask=mask, max_new_tokens=12, decode_strategy="greedy_search", eos_token_id=-1)
    stock, fast = model(), model()
    apply(fast)
    return bool((stock.generate(ids, **call)[0] == fast.generate(ids, **call)[0]).all())


def sequence_parallel_rows() -> dict:
    config = model().config
    q, k, v = (paddle.randn([2, 8, 4, 16]) for _ in range(3))
    fast = CausalAttention(modeling.scaled_dot_product_attention, ByShape())
    rows = fast(q, config, k, v, None, False, sequence_parallel=True)
    stock = modeling.scaled_dot_product_attention(q, config, k, v, None, False, sequence_parallel=True)
    return {"shape": rows.shape, "difference": difference(rows, stock)}


def tables_kept() -> int:
    embedding = RotaryEmbedding(modeling.apply_rotary_pos_emb)
    cos = paddle.randn([1, 64, 1, 16])
    for length in range(2, 12):
        q = paddle.randn([1, length, 4, 16])
        embedding(q, q, cos[:, :length], cos[:, :length], None)
    return len(embedding._tables._made)


def alibi_without_mask() -> float:
    """Alibi beside no mask at all: what it adds to the scores must not get lost."""
    config = model().config
    q, k, v = (paddle.randn([2, 8, 4, 16]) for _ in range(3))
    call = (q, config, k, v, None, False, paddle.randn([2, 4, 1, 8]))
    fast = CausalAttention(modeling.scaled_dot_product_attention, ByShape())
    return difference(fast(*call), modeling.scaled_dot_product_attention(*call))


def table_longer_than_the_query() -> float:
    """One new token beside cached keys, its position given as 0: cos and sin are longer than the query."""
    q, cos, sin = paddle.randn([2, 1, 4, 16]), paddle.randn([1, 9, 1, 16]), paddle.randn([1, 9, 1, 16])
    call = (q, q, cos, sin, paddle.zeros([2, 1], dtype="int64"))
    embedding = RotaryEmbedding(modeling.apply_rotary_pos_emb)
    return difference(embedding(*call)[0], modeling.apply_rotary_pos_emb(*call)[0])


def family(name: str, **configuration) -> dict:
    """The line, and loss and gradients against stock, for a small model of another family."""
    common = dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
    config = getattr(families, f"{name}Config")(**{**common, **configuration})
    made = []
    for fast in (False, True):
        paddle.seed(0)
        one = getattr(families, f"{name}ForCausalLM")(config)
        line = apply(one) if fast else ""
        ids = batch(4)
        loss = one(ids[:, :-1], attention_mask=paddle.ones([4, 32]), labels=ids[:, 1:])[0]
        loss.backward()
        gradients = {key: weight.grad for key, weight in one.named_parameters() if weight.grad is not None}
        made.append((loss, gradients))
    (stock_loss, stock), (fast_loss, fast) = made
    relative = max(((fast[key] - stock[key]).norm() / stock[key].norm()).item() for key in stock if stock[key].norm())
    return {"line": line, "loss": difference(stock_loss, fast_loss), "gradient": relative, "weights": len(stock)}


if __name__ == "__main__":
    correct(["newer_models_unknown"])
    first = model()
    answers = {
        "stride_kernel": paddle.get_flags("FLAGS_use_stride_kernel")["FLAGS_use_stride_kernel"],
        "line": apply(first),
        "second_line": apply(first),
        "calls": calls_against_stock(),
        "float64_norm": float64_norm(),
        "other_model_changed": other_model_changed(),
        "generated_equal": generated_equal(),
        "sequence_parallel": sequence_parallel_rows(),
        "alibi_without_mask": alibi_without_mask(),
        "longer_table": table_longer_than_the_query(),
        "tables_kept": tables_kept(),
        "qwen2": family("Qwen2", num_key_value_heads=2),
        "qwen3": family("Qwen3", num_key_value_heads=2, head_dim=32),
        "mistral": family("Mistral", num_key_value_heads=2),
        "bloom": family("Bloom", n_layer=2, n_head=4),
    }
    print(json.dumps(answers))
