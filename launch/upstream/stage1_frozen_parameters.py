"""Sharding stage 1 makes gradients of zeros for frozen parameters, and sums them over the ranks.

Upstream: before the optimizer's step each parameter that has no gradient gets one (reduce_gradients of
DygraphShardingOptimizer in paddle/distributed/fleet/meta_optimizers/dygraph_optimizer/dygraph_sharding_optimizer.py).
Without the correction: with adapters every rank keeps gradients as large as the whole base from the first step on, and
sends them in each.
Here: it gets only the parameters that are trained.
"""

from paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer import (
    DygraphShardingOptimizer,
)

_upstream = DygraphShardingOptimizer.reduce_gradients


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    DygraphShardingOptimizer.reduce_gradients = _reduce_gradients_of_trained


def _reduce_gradients_of_trained(self, parameter_list, hcg):
    return _upstream(self, [parameter for parameter in parameter_list if not parameter.stop_gradient], hcg)
