"""A tiny Mixtral on a rank, for test_mixtral_experts.py."""

import numpy as np
import paddle
from paddlenlp.transformers import MixtralConfig, MixtralForCausalLM

from launch.upstream import correct
from tests.families.reference import Weights, experts

HIDDEN, EXPERTS, TOKENS = 16, 4, 10


def model(corrected: bool = True, **changes) -> MixtralForCausalLM:
    if corrected:
        correct(["mixtral_experts"])
    sizes = {"vocab_size": 32, "hidden_size": HIDDEN, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": EXPERTS}
    paddle.seed(3)
    return MixtralForCausalLM(MixtralConfig(**sizes, **heads, **changes))


def block_against_formula() -> dict:
    """Of a block whose router avoids its first expert: the largest difference to all experts on all tokens, and the
    gradients of the weights of each expert."""
    block = model().mixtral.layers[0].block_sparse_moe
    x = paddle.randn([2, TOKENS // 2, HIDDEN])
    x[..., 0] = 1.0  # for the router to see
    with paddle.no_grad():
        block.gate.weight[0, 0] = -50.0
    out, logits = block(x)
    (out**2).sum().backward()
    tensors = {f"{name}.weight": layer.weight.numpy().T for name, layer in linear_layers(block)}
    expected = experts(Weights(tensors), x.numpy().astype("float64"), 2)
    sums = [[float(layer.weight.grad.abs().sum()) for _, layer in linear_layers(one)] for one in block.experts]
    return {"difference": float(np.abs(out.numpy() - expected).max()), "logits": logits.shape, "gradients": sums}


def linear_layers(block) -> list:
    return [(name, layer) for name, layer in block.named_sublayers() if hasattr(layer, "weight")]


def of_one_token() -> list[int]:
    """As in generation with a cache."""
    return model().mixtral.layers[0].block_sparse_moe(paddle.randn([1, 1, HIDDEN]))[0].shape


def stock() -> None:
    model(corrected=False)(paddle.ones([2, TOKENS], "int64"))


def losses() -> dict[str, float]:
    """Of the same batch: of a model without the auxiliary loss, of one with it in training, in evaluation, and what is
    the first it gives without labels; and the auxiliary loss by its formula."""
    ids = paddle.randint(0, 32, [2, TOKENS])
    plain, balanced = model(), model(output_router_logits=True, router_aux_loss_coef=0.5)
    found = {"plain": float(plain(ids, labels=ids)[0]), "balanced": float(balanced(ids, labels=ids)[0])}
    logits = balanced(ids, output_router_logits=True, return_dict=True).router_logits
    found["first"] = balanced(ids)[0].shape
    balanced.eval()
    found["evaluated"] = float(balanced(ids, labels=ids)[0])
    shares = np.concatenate([paddle.nn.functional.softmax(one).numpy() for one in logits]).astype("float64")
    chosen = np.zeros_like(shares)
    np.put_along_axis(chosen, np.argsort(-shares)[:, :2], 1.0, axis=1)
    return found | {"auxiliary": float(EXPERTS * (chosen.mean(0) * shares.mean(0)).sum())}
