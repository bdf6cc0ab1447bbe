"""A frozen and a trained layer under sharding stage 1, for test_stage1_frozen_parameters.py."""

import paddle
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer import (
    DygraphShardingOptimizer,
)

from launch.upstream import correct
from tests.families.family_ranks import start_fleet


def gradients(corrected: bool) -> list[float | None]:
    """Of the frozen and the trained weight after the sum over the ranks; rank r's input is r + 1."""
    if corrected:
        correct(["stage1_frozen_parameters"])
        correct(["stage1_frozen_parameters"])
    start_fleet(sharding_degree=paddle.distributed.get_world_size())
    layers = [paddle.nn.Linear(1, 1, bias_attr=False) for _ in range(2)]
    weights = [layer.weight for layer in layers]
    weights[0].stop_gradient = True
    weights[0].set_value(paddle.ones([1, 1]))
    inner = paddle.optimizer.AdamW(parameters=weights)
    groups = fleet.get_hybrid_communicate_group()
    optimizer = DygraphShardingOptimizer(inner, groups)
    layers[1](layers[0](paddle.full([1, 1], paddle.distributed.get_rank() + 1.0))).sum().backward()
    optimizer.reduce_gradients(weights, groups)
    return [None if one.grad is None else float(one.grad) for one in weights]
