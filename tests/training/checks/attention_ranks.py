"""Attention functions, right and wrong, and what the start-up check says of them; for ranks that have Paddle."""

import numpy as np
import paddle


def verdicts(cases: list) -> list[str]:
    """What the check says of functions below, for [name, dtype, (heads, key_value heads, size), mask] each."""
    from launch.training.checks.attention_check import Heads, disagreement

    return [disagreement(globals()[name], Heads(*heads), dtype, mask) for name, dtype, heads, mask in cases]


def leaves_random_numbers_alone() -> bool:
    paddle.seed(5)
    expected = paddle.rand([3]).tolist()
    paddle.seed(5)
    verdicts([("right", "bfloat16", (1, 1, 8), "causal")])
    return paddle.rand([3]).tolist() == expected


def right(query, key, value, mask):
    """Exact in float32, rounded at the end, as a kernel does."""
    return _attend(query, key, value, mask).astype(query.dtype)


def rounded(query, key, value, mask):
    """Rounds the probabilities, too."""
    return _attend(query, key, value, mask, of_weights=lambda weights: weights.astype(query.dtype)).astype(query.dtype)


def not_causal(query, key, value, mask):
    return _attend(query, key, value, mask, causal=False).astype(query.dtype)


def ignores_the_mask(query, key, value, mask):
    return right(query, key, value, None)


def zero(query, key, value, mask):
    return right(query, key, value, mask) * 0


def not_a_number(query, key, value, mask):
    return right(query, key, value, mask) * float("nan")


def one_position_is_garbage(query, key, value, mask):
    here = np.zeros([1, query.shape[1], 1, 1], "float32")
    here[0, 150] = 1
    return (_attend(query, key, value, mask) * paddle.to_tensor(1 - here)).astype(query.dtype)


def scaled_gradient(query, key, value, mask):
    """Right forward, twice the gradient of the key."""
    return right(query, key * 2 - key.detach(), value, mask)


def lost_gradient(query, key, value, mask):
    """Right forward, no gradient reaches the query."""
    lost = query.astype("float32") * 0 + query.detach().astype("float32")
    return _attend(lost, key, value, mask).astype(query.dtype)


def wrong_group(query, key, value, mask):
    """Query heads 0 1 0 1 share a key instead of 0 0 1 1."""
    order = [index % key.shape[2] for index in range(query.shape[2])]
    return right(query, _pick(key, order), _pick(value, order), mask)


def mixes_samples(query, key, value, mask):
    """As paddlenlp's ChatGLM2: length and batch are swapped by a reshape."""
    result = right(query, key, value, mask)
    batch, length, *rest = result.shape
    return result.reshape([length, batch, *rest]).transpose([1, 0, 2, 3])


def refuses(query, key, value, mask):
    raise OSError(
        "C++ Traceback ...\n----------------------\nError Message Summary:\n----------------------\n"
        "ExternalError: Error in Flash-Attention, detail information is: `is_sm8x || is_sm90` check failed\n"
        "  [Hint: Expected status == true, but received status:0 != true:1.]"
    )


def paddlenlps_own(query, key, value, mask):
    """The function that models call; on a CPU Paddle computes it exactly, in float32."""
    from launch.training.checks.attention_check import as_paddlenlp_calls_it

    arguments = [one.astype("float32") for one in (query, key, value)]
    attend = as_paddlenlp_calls_it("qwen")  # gives either the mask or causal=True
    return attend(*arguments, None if mask is None else mask.astype("float32")).astype(query.dtype)


def paddlenlps_llama(query, key, value, mask):
    """As above for a LLaMA, which gives both: the CPU's code then ignores the mask."""
    from launch.training.checks.attention_check import as_paddlenlp_calls_it

    arguments = [one.astype("float32") for one in (query, key, value)]
    attend = as_paddlenlp_calls_it("llama")
    return attend(*arguments, None if mask is None else mask.astype("float32")).astype(query.dtype)


def _attend(query, key, value, mask, causal=True, of_weights=lambda weights: weights):
    """Exact attention in float32."""
    groups = query.shape[2] // key.shape[2]
    query, key, value = (one.astype("float32").transpose([0, 2, 1, 3]) for one in (query, key, value))
    key, value = (one.repeat_interleave(groups, axis=1) for one in (key, value))
    scores = paddle.matmul(query, key, transpose_y=True) / query.shape[-1] ** 0.5
    if causal:
        scores = scores + paddle.triu(paddle.full(scores.shape[-2:], -1e30), diagonal=1)
    if mask is not None:
        scores = scores + mask.astype("float32")
    weights = of_weights(paddle.nn.functional.softmax(scores, axis=-1)).astype("float32")
    return paddle.matmul(weights, value).transpose([0, 2, 1, 3])


def _pick(tensor, order):
    return paddle.index_select(tensor.astype("float32"), paddle.to_tensor(order), axis=2).astype(tensor.dtype)


def llama_under_flash_on_a_cpu(alibi: bool, left_padded: bool) -> list[float]:
    """[largest difference of its logits to those of exact attention, largest logit] of a tiny LLaMA."""
    from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM

    from launch.models.named_configs import load_config

    paddle.seed(1)
    config = LlamaConfig(**load_config("llama-rehearsal"), alibi=alibi)
    model = LlamaForCausalLM._from_config(config, dtype="float32")
    model.eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.set_value(parameter * 4)  # else attention hardly matters
    ids = paddle.to_tensor(np.random.default_rng(0).integers(5, 1000, (2, 24)))
    seen = np.ones([2, 24], "int64")
    seen[0, :6] = 0 if left_padded else 1

    def logits(flash: bool) -> np.ndarray:
        for layer in model.sublayers(include_self=True):
            if hasattr(layer, "config"):
                layer.config.use_flash_attention = flash
        with paddle.no_grad():
            return model(ids, attention_mask=paddle.to_tensor(seen))[0].numpy()[seen == 1]

    exact = logits(flash=False)
    return [float(np.abs(logits(flash=True) - exact).max()), float(np.abs(exact).max())]
