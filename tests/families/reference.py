"""Forward passes in NumPy, from the published descriptions, on tensors under Hugging Face's names. Float64 throughout.

logits = FORWARD["baichuan-13b"](config, tensors, ids)      # [batch, length, vocabulary]

Sources: LLaMA arXiv 2302.13971, rotary positions 2104.09864, grouped queries 2305.13245, ALiBi 2108.12409, GLM
2103.10360; of ChatGLM, ChatGLM2 and Baichuan, which have no paper, the published modeling_*.py say what they compute.
Bloom, OPT and Qwen2-MoE are compared with transformers alone (tests/weights/test_export_against_transformers.py).
"""

import numpy as np


class Weights:
    def __init__(self, tensors: dict[str, np.ndarray], prefix: str = ""):
        self.tensors, self.prefix = tensors, prefix

    def __getitem__(self, name: str) -> np.ndarray:
        return self.tensors[self.prefix + name].astype(np.float64)

    def within(self, prefix: str) -> "Weights":
        return Weights(self.tensors, f"{self.prefix}{prefix}.")

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        y = x @ self[f"{name}.weight"].T
        return y + self[f"{name}.bias"] if f"{self.prefix}{name}.bias" in self.tensors else y

    def rms_norm(self, name: str, x: np.ndarray, epsilon: float) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * self[f"{name}.weight"]

    def layer_norm(self, name: str, x: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
        return scaled * self[f"{name}.weight"] + self[f"{name}.bias"]


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    """The tanh form that GPT-2, GLM and Bloom use."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def heads(x, count):
    """[batch, length, count x size] -> [batch, count, length, size]"""
    batch, length, width = x.shape
    return x.reshape(batch, length, count, width // count).transpose(0, 2, 1, 3)


def attend(q, k, v, allowed, bias=0.0):
    """Softmax attention; key and value heads are shared by groups of query heads. -> [batch, length, hidden]"""
    k, v = (np.repeat(one, q.shape[1] // one.shape[1], axis=1) for one in (k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]) + bias
    mixed = softmax(np.where(allowed, scores, -np.inf)) @ v
    batch, count, length, size = mixed.shape
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, count * size)


def causal(length, context=0):
    """[length, length]: who sees whom; the first `context` tokens are seen by all."""
    allowed = np.tril(np.ones((length, length), bool))
    allowed[:, :context] = True
    return allowed


def angles(positions, size, theta=10000.0):
    """[length, size / 2]"""
    return positions[:, None] * theta ** (-np.arange(0, size, 2) / size)


def scaled(config, size, theta, length):
    """(radians a position of each pair, what cosines and sines are multiplied by), as `rope_scaling` says.

    Linear: arXiv 2306.15595, 3.2. Dynamic: 2309.00071, A.2. YaRN: 2309.00071, 3.2 to 3.4, with transformers' names.
    llama3: the reference code of Llama 3.1, apply_scaling.
    """
    block = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind, factor = block.get("rope_type") or block.get("type", "default"), block.get("factor", 1.0)
    original = block.get("original_max_position_embeddings") or config.get("max_position_embeddings")
    if kind == "dynamic" and length > original:
        theta = theta * (factor * length / original - (factor - 1)) ** (size / (size - 2))
    plain = theta ** (-np.arange(0, size, 2) / size)
    if kind in ("default", "dynamic"):
        return plain, 1.0
    if kind == "linear":
        return plain / factor, 1.0
    wavelengths = 2 * np.pi / plain
    if kind == "llama3":
        low, high = block["low_freq_factor"], block["high_freq_factor"]
        share = (original / wavelengths - low) / (high - low)
        between = (1 - share) * plain / factor + share * plain
        found = np.where(wavelengths > original / low, plain / factor, between)
        return np.where(wavelengths < original / high, plain, found), 1.0
    assert kind == "yarn"
    turns = np.array([block.get("beta_fast", 32), block.get("beta_slow", 1)])
    low, high = size * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(theta))
    if block.get("truncate", True):
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = np.clip((np.arange(size // 2) - low) / (high - low), 0, 1)
    temperature = [0.1 * block.get(key, 1.0) * np.log(factor) + 1 for key in ("mscale", "mscale_all_dim")]
    weights = temperature[0] / temperature[1] if "mscale_all_dim" in block else temperature[0]
    return plain / factor * ramp + plain * (1 - ramp), block.get("attention_factor", weights)


def rotate_halves(x, angle):
    """The first half of a head's numbers with the second half, as one complex number each."""
    first, second = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def rotate_neighbours(x, angle):
    """Numbers 0 and 1, 2 and 3, ... as one complex number each."""
    first, second = x[..., 0::2], x[..., 1::2]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack([first * cos - second * sin, second * cos + first * sin], axis=-1).reshape(x.shape)


def slopes(count):
    """ALiBi's, for any number of heads: the powers for the power of two below, then every other one of the next."""
    below = 2 ** int(np.log2(count))
    first = 2.0 ** (-8.0 / below * np.arange(1, below + 1))
    more = 2.0 ** (-4.0 / below * np.arange(1, 2 * (count - below), 2))
    return np.concatenate([first, more])


def llama(config, tensors, ids):
    """LLaMA, Qwen2, Qwen3, Mistral, Mixtral, Baichuan, ERNIE 4.5 and their mixtures of experts."""
    w, epsilon, count = Weights(tensors), config["rms_norm_eps"], config["num_attention_heads"]
    alibi = "max_position_embeddings" not in config
    theta = config.get("rope_parameters", config).get("rope_theta", 10000.0)
    length, size = ids.shape[1], config.get("head_dim", config["hidden_size"] // count)
    frequencies, factor = scaled(config, size, theta, length)
    angle = np.arange(length)[:, None] * frequencies
    distance = np.arange(length)[None, :] - np.arange(length)[:, None]
    bias = slopes(count)[:, None, None] * distance if alibi else 0.0
    h = w["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        layer = w.within(f"model.layers.{i}")
        x = layer.rms_norm("input_layernorm", h, epsilon)
        if f"model.layers.{i}.self_attn.W_pack.weight" in tensors:
            q, k, v = np.split(layer.linear("self_attn.W_pack", x), 3, axis=-1)
        else:
            q, k, v = (layer.linear(f"self_attn.{name}_proj", x) for name in "qkv")
        q, k, v = (heads(one, one.shape[-1] // size) for one in (q, k, v))
        if config["model_type"].startswith("qwen3"):
            q, k = (layer.rms_norm(f"self_attn.{name}_norm", one, epsilon) for name, one in (("q", q), ("k", k)))
        if not alibi:
            rotate = rotate_neighbours if config["model_type"].startswith("ernie4_5") else rotate_halves
            q, k = factor * rotate(q, angle), factor * rotate(k, angle)
        h = h + layer.linear("self_attn.o_proj", attend(q, k, v, causal(length), bias))
        x = layer.rms_norm("post_attention_layernorm", h, epsilon)
        if "num_local_experts" in config:
            h = h + experts(layer.within("block_sparse_moe"), x, config["num_experts_per_tok"])
            continue
        h = h + (
            mixture(layer.within("mlp"), x, config)
            if f"{layer.prefix}mlp.gate.weight" in tensors
            else mlp(layer.within("mlp"), x)
        )
    head = w["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"]
    if "z_loss_weight" in config:  # Baichuan2
        head = head / np.linalg.norm(head, axis=1, keepdims=True)
    return w.rms_norm("model.norm", h, epsilon) @ head.T


def experts(w, x, chosen):
    """Mixtral's, all of them on all tokens: those that a token is not sent to have the weight 0. arXiv 2401.04088."""
    scores = w.linear("gate", x)
    kept = scores >= np.sort(scores, axis=-1)[..., -chosen, None]
    weights = softmax(np.where(kept, scores, -np.inf))
    each = [w.within(f"experts.{number}") for number in range(scores.shape[-1])]
    outputs = [one.linear("w2", silu(one.linear("w1", x)) * one.linear("w3", x)) for one in each]
    return sum(weights[..., number, None] * output for number, output in enumerate(outputs))


def mlp(w, x):
    return w.linear("down_proj", silu(w.linear("gate_proj", x)) * w.linear("up_proj", x))


def mixture(w, x, config):
    """Qwen3-MoE's and ERNIE's, all of them on all tokens. Qwen3 technical report; ERNIE 4.5 technical report, 2."""
    shares = softmax(w.linear("gate", x))
    bias = "moe_statics.e_score_correction_bias"
    chosen_by = shares + w[bias][0] if f"{w.prefix}{bias}" in w.tensors else shares
    chosen = config.get("moe_k") or config["num_experts_per_tok"]
    weights = np.where(chosen_by >= np.sort(chosen_by, axis=-1)[..., -chosen, None], shares, 0.0)
    if config.get("norm_topk_prob", True):
        weights = weights / np.maximum(weights.sum(-1, keepdims=True), config.get("moe_norm_min", 0.0))
    out = sum(weights[..., i, None] * mlp(w.within(f"experts.{i}"), x) for i in range(shares.shape[-1]))
    return out + mlp(w.within("shared_experts"), x) if f"{w.prefix}shared_experts.up_proj.weight" in w.tensors else out


def chatglm(config, tensors, ids):
    """ChatGLM-6B: two rotations a head, residuals from behind the norms, enlarged by sqrt(2 L)."""
    w, count, layers = Weights(tensors).within("transformer"), config["num_attention_heads"], config["num_layers"]
    length, size = ids.shape[1], config["hidden_size"] // count
    context = int(np.argmax(ids[0] == config["bos_token_id"]))
    mask = int(np.argmax(ids[0] == config["gmask_token_id"]))
    positions = np.where(np.arange(length) < context, np.arange(length), mask)
    blocks = np.maximum(np.arange(length) - context + 1, 0)
    h = w["word_embeddings.weight"][ids]
    for i in range(layers):
        layer = w.within(f"layers.{i}")
        x = layer.layer_norm("input_layernorm", h)
        fused = heads(layer.linear("attention.query_key_value", x), count)  # of each head: query, key, value
        q, k, v = np.split(fused, 3, axis=-1)
        q, k = (_rotate_twice(one, positions, blocks, size // 2) for one in (q, k))
        alpha = np.sqrt(2 * layers)
        h = alpha * x + layer.linear("attention.dense", attend(q, k, v, causal(length, context)))
        x = layer.layer_norm("post_attention_layernorm", h)
        h = alpha * x + layer.linear("mlp.dense_4h_to_h", gelu(layer.linear("mlp.dense_h_to_4h", x)))
    return w.layer_norm("final_layernorm", h) @ tensors["lm_head.weight"].astype(np.float64).T


def _rotate_twice(x, positions, blocks, size):
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate(
        [rotate_halves(first, angles(positions, size)), rotate_halves(second, angles(blocks, size))], axis=-1
    )


def chatglm2(config, tensors, ids):
    """ChatGLM2-6B: the first half of each head is rotated, neighbours together; keys and values in groups."""
    w, epsilon = Weights(tensors).within("transformer"), config["layernorm_epsilon"]
    hidden, size, length = config["hidden_size"], config["kv_channels"], ids.shape[1]
    key_value = size * config["multi_query_group_num"]
    angle = angles(np.arange(length), size // 2)
    h = w["embedding.word_embeddings.weight"][ids]
    for i in range(config["num_layers"]):
        layer = w.within(f"encoder.layers.{i}")
        x = layer.rms_norm("input_layernorm", h, epsilon)
        fused = layer.linear("self_attention.query_key_value", x)
        q, k, v = np.split(fused, [hidden, hidden + key_value], axis=-1)
        q, k, v = (heads(one, one.shape[-1] // size) for one in (q, k, v))
        q, k = (
            np.concatenate([rotate_neighbours(one[..., : size // 2], angle), one[..., size // 2 :]], axis=-1)
            for one in (q, k)
        )
        h = h + layer.linear("self_attention.dense", attend(q, k, v, causal(length)))
        x = layer.rms_norm("post_attention_layernorm", h, epsilon)
        gate, up = np.split(layer.linear("mlp.dense_h_to_4h", x), 2, axis=-1)
        h = h + layer.linear("mlp.dense_4h_to_h", silu(gate) * up)
    return w.linear("output_layer", w.rms_norm("encoder.final_layernorm", h, epsilon))


def glm(config, tensors, ids, context, mask):
    """GLM: learned positions of two kinds. context: tokens of the prompt; mask: where in it [MASK] stands."""
    w, count, length = Weights(tensors).within("glm"), config["num_attention_heads"], ids.shape[1]
    positions = np.where(np.arange(length) < context, np.arange(length), mask)
    blocks = np.maximum(np.arange(length) - context + 1, 0)
    h = w["word_embeddings.weight"][ids]
    h = h + w["transformer.position_embeddings.weight"][positions]
    h = h + w["transformer.block_position_embeddings.weight"][blocks]
    for i in range(config["num_layers"]):
        layer = w.within(f"transformer.layers.{i}")
        x = layer.layer_norm("input_layernorm", h)
        q, k, v = (heads(one, count) for one in np.split(layer.linear("attention.query_key_value", x), 3, axis=-1))
        h = h + layer.linear("attention.dense", attend(q, k, v, causal(length, context)))
        x = layer.layer_norm("post_attention_layernorm", h)
        h = h + layer.linear("mlp.dense_4h_to_h", gelu(layer.linear("mlp.dense_h_to_4h", x)))
    return w.layer_norm("transformer.final_layernorm", h) @ w["word_embeddings.weight"].T


FORWARD = {
    "llama": llama,
    "qwen2": llama,
    "qwen3": llama,
    "baichuan-7b": llama,
    "baichuan-13b": llama,
    "chatglm": chatglm,
    "chatglm2": chatglm2,
    "mistral": llama,
    "mixtral": llama,
    "ernie4_5": llama,
    "qwen3-moe": llama,
    "ernie4_5-moe": llama,
}
