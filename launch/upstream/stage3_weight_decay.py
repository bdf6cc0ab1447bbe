"""Sharding stage 3 drops the weight decay of the parameters that it slices.

Upstream: the Trainer tells the optimizer by name which parameters decay (create_optimizer in
paddlenlp/trainer/trainer.py). Stage 3 hands it slices instead, named "slice@" and the parameter's name
(_TensorWrapper in paddle/distributed/fleet/meta_parallel/sharding/group_sharded_stage3.py), which no name of that
list equals.
Without the correction: nothing but the parameters below the segment size decays, on GPUs as on a CPU. The losses of
a run with weight decay drift away from those of every other layout.
Here: the optimizer of stage 3 looks the name up without "slice@".
"""

from paddle.distributed.fleet.meta_parallel.sharding import group_sharded_stage3

PREFIX = "slice@"

_upstream = group_sharded_stage3._OptimizerWrapper


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    group_sharded_stage3._OptimizerWrapper = _wrap_optimizer


def _wrap_optimizer(optimizer, *args):
    """Wrap the optimizer as upstream does, once in GroupShardedStage3."""
    wrapped = _upstream(optimizer, *args)
    inner = getattr(wrapped, "_inner_opt", wrapped)  # that of MixPrecisionOptimizer, where gradients are kept in fp32
    decays = getattr(inner, "_apply_decay_param_fun", None)
    if decays is not None:
        inner._apply_decay_param_fun = lambda name: decays(name.removeprefix(PREFIX))
    return wrapped
