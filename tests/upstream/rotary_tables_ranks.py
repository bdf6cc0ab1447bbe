"""Rotary tables of paddlenlp's attention layers, for test_rotary_tables_of_every_layer.py."""

import paddle
from paddlenlp.transformers import Qwen2Config, Qwen2ForCausalLM
from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.mistral.modeling import MistralRotaryEmbedding
from paddlenlp.transformers.mixtral.modeling import MixtralRotaryEmbedding
from paddlenlp.transformers.qwen2.modeling import Qwen2RotaryEmbedding
from paddlenlp.transformers.qwen2_moe.modeling import Qwen2MoeRotaryEmbedding

from launch.upstream import correct
from launch.upstream.rotary_tables_of_every_layer import Tables
from tests.plan.memory_ranks import allocated

NAME = "rotary_tables_of_every_layer"
SIZE, POSITIONS = 16, 2048
LAYERS = {
    "llama": lambda: llama.LlamaRotaryEmbedding(SIZE, POSITIONS),
    "llama3": lambda: llama.Llama3RotaryEmbedding(SIZE, POSITIONS, original_max_position_embeddings=64),
    "qwen2": lambda: Qwen2RotaryEmbedding(SIZE, POSITIONS),
    "mistral": lambda: MistralRotaryEmbedding(SIZE, POSITIONS),
    "qwen2_moe": lambda: Qwen2MoeRotaryEmbedding(SIZE, POSITIONS),
    "mixtral": lambda: MixtralRotaryEmbedding(SIZE, POSITIONS),
}


def bytes_of_a_qwen2(corrected: bool) -> int:
    """What a model of 3 layers takes beside its parameters, after a forward pass of 40 tokens."""
    if corrected:
        correct([NAME])
        correct([NAME])
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
    before = allocated()
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=64, num_hidden_layers=3, max_position_embeddings=131072, **sizes))
    with paddle.no_grad():
        model(paddle.ones([1, 40], "int64"))
    parameters = sum(int(parameter.size) * 4 for parameter in model.parameters())
    return allocated() - before - parameters


def differences(name: str, dtype: str) -> dict:
    """How far the corrected layers' results are from upstream's, made and called as a model of this dtype does."""
    paddle.set_default_dtype(dtype)
    stock = LAYERS[name]()
    lengths = (7, 1030, 5, POSITIONS)
    with paddle.amp.auto_cast(dtype != "float32", dtype="bfloat16", level="O2"):
        expected = [_results(stock, length, dtype) for length in lengths]
    correct([NAME])
    first, second = LAYERS[name](), LAYERS[name]()
    found, rows = [], []
    with paddle.amp.auto_cast(dtype != "float32", dtype="bfloat16", level="O2"):
        for length in lengths:
            found.append(_results(first, length, dtype))
            assert _results(second, length, dtype) == found[-1]
            rows.append(first.tables.cos_cached.shape[0 if name == "mistral" else 1])
    return {"equal": found == expected, "shared": first.tables is second.tables, "rows": rows}


def differs_after_a_cast(name: str) -> list[bool]:
    """Whether the corrected layers give other values than upstream's: one that is cast once it is made, as
    paddle.amp.decorate does under O2; one that is cast back, beside it. Paddle casts inv_freq, too: a tensor that a
    layer has is one of its buffers."""
    half, whole = _results(LAYERS[name]().to(dtype="float16"), 1030, "float16"), _results(LAYERS[name](), 1030)
    correct([NAME])
    first, second = LAYERS[name](), LAYERS[name]()
    found = [_results(first, 1030) != whole]
    found.append(_results(second.to(dtype="float16"), 1030, "float16") != half)
    return [*found, _results(first, 1030) != whole, _results(second.to(dtype="float32"), 1030) != whole]


def differs_where_it_was_made_before(name: str) -> bool:
    layer = LAYERS[name]()
    expected = _results(layer, 1030)
    correct([NAME])
    return _results(layer, 1030) != expected


def _results(layer, length: int, dtype: str = "float32") -> list:
    x = paddle.zeros([1, length, 2, SIZE], dtype)
    return [(str(table.dtype), table.shape, table.astype("float32").numpy().tobytes()) for table in layer(x, length)]


def beyond_the_end(name: str) -> list:
    """Shape of the cosines for one position more than a layer has, and how often two layers compute them."""
    correct([NAME])
    first, second = LAYERS[name](), LAYERS[name]()
    computed, grow = [], Tables.grow
    Tables.grow = lambda tables, *args: computed.append(args) or grow(tables, *args)
    for layer in (first, second, first, second):
        shape = layer(paddle.zeros([1, 1, 2, SIZE]), POSITIONS + 1)[0].shape
    return [shape, len(computed)]
