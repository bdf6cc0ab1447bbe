"""A tiny Qwen2-MoE on a rank, for test_qwen2_moe_experts.py."""

import paddle
from paddlenlp.transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

from launch.families.named_configs import load_config
from launch.upstream import correct


def model(corrected: bool, **changes) -> Qwen2MoeForCausalLM:
    if corrected:
        correct(["qwen2_moe_experts"])
    paddle.seed(3)
    return Qwen2MoeForCausalLM(Qwen2MoeConfig(**load_config("qwen2-moe-rehearsal") | changes))


def ids() -> paddle.Tensor:
    return paddle.randint(0, 1000, [2, 40])


def chosen_experts(corrected: bool) -> list[bool]:
    """Of each expert of the first layer, whether its weights have a gradient."""
    made = model(corrected)
    batch = ids()
    made(batch, labels=batch)[0].backward()
    layers = made.qwen2_moe.layers[0].mlp.experts
    return [bool(layer.down_proj.weight.grad.abs().sum() > 0) for layer in layers]


def losses(corrected: bool) -> dict[str, float]:
    """Of the same batch without the auxiliary loss, with it, and with it in evaluation."""
    plain, balanced = model(corrected), model(corrected, output_router_logits=True, router_aux_loss_coef=0.5)
    batch = ids()
    found = {"plain": float(plain(batch, labels=batch)[0]), "balanced": float(balanced(batch, labels=batch)[0])}
    balanced.eval()
    return found | {"evaluated": float(balanced(batch, labels=batch)[0])}
