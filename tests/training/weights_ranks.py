"""What is said to weights that are no numbers, for test_weights.py. Imported in ranks only."""

import numpy as np
import paddle
from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_stage3 import GroupShardedStage3

from launch.errors import UserError
from launch.rehearsal import collectives
from launch.training.watches import require_finite

SIZE = 64  # rows and columns; each rank has half of the elements


def said_under_stage3() -> str:
    """Of a layer whose last weight, in the slice of rank 1, is NaN, once stage 3 has released it."""
    collectives.install()
    paddle.distributed.init_parallel_env()
    layer = paddle.nn.Linear(SIZE, SIZE, bias_attr=False)
    values = np.ones((SIZE, SIZE), "float32")
    values[-1, -1] = np.nan
    layer.weight.set_value(values)
    optimizer = paddle.optimizer.SGD(parameters=layer.parameters())
    GroupShardedStage3(layer, optimizer, group=paddle.distributed.new_group([0, 1]), segment_size=1, device="cpu")
    assert not layer.weight._is_initialized()
    try:
        require_finite(layer)
    except UserError as error:
        return str(error)
    return ""
