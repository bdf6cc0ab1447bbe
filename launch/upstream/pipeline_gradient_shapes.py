"""With micro batches of different lengths a pipeline stage receives gradients in the shape of another micro batch.

Upstream: with p2p_cache_shape off (--pipeline_parallel_config disable_p2p_cache_shape) each activation is sent with its
shape, but P2pHelper.recv_backward (paddle/distributed/fleet/meta_parallel/pp_utils/p2p_communication.py) expects a
gradient in the shape that was sent last. In 1F1B that is a later micro batch's.
Without the correction: gloo aborts ("op.preamble.length <= op.nbytes"); NCCL, which compares no lengths, would mix
micro batches up or wait for ever.
Here: gradients come back in the order of what was sent, so its shapes wait in a queue. Evaluation sends no gradients.
"""

from collections import deque

import paddle
from paddle.distributed.fleet.meta_parallel.pp_utils.p2p_communication import P2pHelper

_send_forward, _recv_backward = P2pHelper.send_forward, P2pHelper.recv_backward


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    P2pHelper.send_forward, P2pHelper.recv_backward = _send, _receive


def _queue(helper: P2pHelper) -> deque:
    """Return (shape message, dtype message) of each activation whose gradient has not come back."""
    return helper.__dict__.setdefault("_sent", deque())


def _send(self, output_tensor, pp_last_stage, *args, **kwargs):
    _send_forward(self, output_tensor, pp_last_stage, *args, **kwargs)
    if not pp_last_stage and not self._use_cache and paddle.is_grad_enabled():
        meta = self._send_recv_meta
        _queue(self).append((meta.send_shape_message, meta.send_dtype_message))


def _receive(self, pp_last_stage, *args, **kwargs):
    if not pp_last_stage and not self._use_cache:
        meta = self._send_recv_meta
        meta.send_shape_message, meta.send_dtype_message = _queue(self).popleft()
    return _recv_backward(self, pp_last_stage, *args, **kwargs)
