"""Under pipeline parallel a weight that two stages share is counted twice in the gradient norm.

Upstream: the first and the last stage of a model with tied embeddings hold one weight. All but the first holder are
to mark it (is_firstly_shared = False), so that HybridParallelClipGrad counts it once, but
PipelineLayer._synchronize_shared_weights (paddle/distributed/fleet/meta_parallel/parallel_layers/pp_layers.py)
compares the parameter's own name, "create_parameter_0.w_0", with that of the attribute, "embedding_weight".
Without the correction: the norm is too large, and clipped steps too small (losses 9e-5 off after ten steps).
Here: the attribute's parameter is marked.
"""

from paddle.distributed.fleet.meta_parallel.parallel_layers.pp_layers import PipelineLayer

_upstream = PipelineLayer._synchronize_shared_weights


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    PipelineLayer._synchronize_shared_weights = _synchronize_shared_weights


def _synchronize_shared_weights(self) -> None:
    _upstream(self)
    for shared in self.shared_comm.values():
        if self.global_rank != min(shared["ranks"]):
            for attribute in shared["weight_attr"]:
                getattr(shared["layer"], attribute).is_firstly_shared = False
