"""Rank functions of test_clipping.py."""

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.distributed.fleet.meta_parallel.sharding import group_sharded_utils
from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_utils import GroupShardedClipGrad
from paddle.nn import clip

from launch import upstream
from launch.rehearsal import collectives
from launch.training.optimizer import ClipByGlobalNorm, GradNorm, keep_norm
from tests.rehearsal.attempts import start


class Counted(list):
    """Pairs that know how often they were read, as those that offload streams."""

    reads = 0

    def __iter__(self):
        self.reads += 1
        return super().__iter__()


class Optimizer:
    """As much of one as has a clip."""

    def __init__(self, grad_clip):
        self._grad_clip = grad_clip


def compare(max_norm: float, sharded: bool) -> dict:
    """Our clip beside upstream's on one set of gradients: of matrices, a vector, a parameter that stage 3 leaves whole,
    one that is not clipped, one without a gradient."""
    if sharded:
        start(bridged=False)
        collectives.accept_the_cpu()
    seen = group_sharded_utils.paddle
    upstream.correct(["half_precision_norm"])
    grad_norm = GradNorm()
    ours = Optimizer(ClipByGlobalNorm(max_norm, grad_norm))
    theirs = paddle.nn.ClipGradByGlobalNorm(max_norm)
    if sharded:
        ours._grad_clip = GroupShardedClipGrad(ours._grad_clip, "cpu:0", dist.get_group())
        theirs = GroupShardedClipGrad(theirs, "cpu:0", dist.get_group())
        keep_norm(ours, grad_norm)
    pairs = Counted(_pairs())
    ours._grad_clip(pairs)
    upstreams = theirs(_pairs())
    return {
        "norm": grad_norm.value,
        "expected": _expected(sharded),
        "reads": pairs.reads,
        "ours": [gradient.numpy().tolist() for _, gradient in list.__iter__(pairs) if gradient is not None],
        "upstream": [gradient.numpy().tolist() for _, gradient in upstreams if gradient is not None],
        "modules": [clip.paddle is paddle, group_sharded_utils.paddle is seen],
    }


def gradients(rank: int) -> list[np.ndarray]:
    rng = np.random.default_rng(rank)
    return [rng.normal(size=shape).astype("float32") for shape in [(7, 5), (300,), (5, 4), (3,), (6,)]]


def _expected(sharded: bool) -> float:
    """The norm, in float64: of the shards of all ranks, and of what this rank has whole."""
    ranks = range(dist.get_world_size()) if sharded else [dist.get_rank()]
    shards = [value for rank in ranks for value in gradients(rank)[:3]]
    values = [*shards, gradients(dist.get_rank())[3]]
    return float(np.sqrt(sum((value.astype("float64") ** 2).sum() for value in values)))


def _pairs() -> list[tuple]:
    values = [paddle.to_tensor(value) for value in gradients(dist.get_rank())]
    pairs = [(paddle.create_parameter(value.shape, "float32"), value) for value in values]
    pairs[3][0].unslice = True
    pairs[4][0].need_clip = False
    return [*pairs, (paddle.create_parameter([2], "float32"), None)]
