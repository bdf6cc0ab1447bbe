"""The norm of gradients in half precision is too small, often 0, and nothing is clipped.

Upstream: the squares of a float16 gradient, and their sum, are float16. paddle/nn/clip.py, _squared_l2_norm, calls a
kernel whose input and output have one dtype (paddle/phi/kernels/funcs/squared_l2_norm.h); GroupShardedClipGrad
(paddle/distributed/fleet/meta_parallel/sharding/group_sharded_utils.py), of sharding stage 3 and of stage 2 alone,
calls paddle.square and paddle.sum.
Without the correction: entries below 1.7e-4, whose squares are below half of the smallest float16, count as 0: |g| in
the log is too small or 0, and --max_grad_norm does not clip. A gradient of norm 256 gives infinity. In bfloat16 the sum
keeps 8 bits.
Here: each gradient is widened to float32 for its norm, one at a time: Paddle's own switch for _squared_l2_norm, by
which all clips of launch/training/optimizer.py sum up, that of sharding stages 2 and 3, too.
"""

from paddle.nn import clip


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    clip._clip_by_global_norm_using_mp_type(True)
