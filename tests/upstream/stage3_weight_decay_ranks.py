"""Rank functions of test_stage3_weight_decay.py."""

import paddle
import paddle.distributed as dist
from paddle.distributed.sharding import group_sharded_parallel

from launch.rehearsal import collectives
from launch.upstream import stage3_weight_decay


def step_without_gradient(corrected: bool) -> dict:
    """AdamW, learning rate 0.5, weight decay 0.2, gradients of 0, on a sliced weight and a whole bias of ones: what
    both are afterwards. The optimizer is told that the weight decays."""
    collectives.install()
    collectives.set_stage3_segment_size(10)
    if corrected:
        stage3_weight_decay.correct()
        stage3_weight_decay.correct()
    dist.init_parallel_env()
    layer = paddle.nn.Linear(4, 4)
    for parameter in layer.parameters():
        parameter.set_value(paddle.ones_like(parameter))
    optimizer = paddle.optimizer.AdamW(
        learning_rate=0.5,
        weight_decay=0.2,
        parameters=layer.parameters(),
        apply_decay_param_fun=lambda name: name == layer.weight.name,
    )
    model, optimizer, _ = group_sharded_parallel(layer, optimizer, "p_g_os", group=dist.get_group())
    sliced = [hasattr(parameter, "fw_storage") for parameter in layer.parameters()]
    (model(paddle.ones([1, 4])) * 0).sum().backward()
    optimizer.step()
    model.get_all_parameters(convert2cpu=True)
    return {"sliced": sliced, "weight": layer.weight.numpy().tolist(), "bias": layer.bias.numpy().tolist()}
