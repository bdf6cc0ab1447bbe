"""Rank functions of test_sharding.py."""

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.distributed.sharding import group_sharded

from launch.rehearsal import collectives
from tests.rehearsal.attempts import start

CLIP_NORM = 0.05  # below every gradient norm of `train`


def make_model() -> paddle.nn.Layer:
    paddle.seed(1)
    return paddle.nn.Sequential(
        paddle.nn.Linear(6, 16), paddle.nn.Tanh(), paddle.nn.LayerNorm(16), paddle.nn.Linear(16, 4)
    )


def make_optimizer(model: paddle.nn.Layer) -> paddle.optimizer.Optimizer:
    clip = paddle.nn.ClipGradByGlobalNorm(CLIP_NORM)
    return paddle.optimizer.Momentum(0.5, 0.9, parameters=model.parameters(), grad_clip=clip)


def shard(model: paddle.nn.Layer, level: str) -> tuple:
    """The model and an optimizer for it, sharded over the default group."""
    sharded, optimizer, _ = group_sharded.group_sharded_parallel(
        model, make_optimizer(model), level, group=dist.get_group()
    )
    return sharded, optimizer


def stage2_parameters() -> dict:
    """Every parameter of stage 2 equals its first value, and lies in the buffer that stage 2 sends."""
    start(bridged=True)
    model = make_model()
    before = [p.numpy() for p in model.parameters()]
    _, optimizer = shard(model, "os_g")
    equal = [bool((p.numpy() == value).all()) for p, value in zip(model.parameters(), before, strict=True)]
    shapes = [list(p.shape) == list(value.shape) for p, value in zip(model.parameters(), before, strict=True)]
    for storages in optimizer.param_storages.values():
        for storage in storages.values():
            storage.buffer.fill_(7.0)
    in_buffer = [bool((p == 7.0).all()) for p in model.parameters()]
    return {"equal": equal, "shapes": shapes, "in buffer": in_buffer}


def slices(numel: int | None) -> list[bool]:
    """For each parameter, largest first: is it sliced in stage 3?"""
    start(bridged=True)
    if numel is not None:
        collectives.set_stage3_segment_size(numel)
    model = make_model()
    parameters = sorted(model.parameters(), key=lambda p: -p.size)
    shard(model, "p_g_os")
    return [hasattr(p, "fw_storage") for p in parameters]


def train(level: str | None, numel: int | None = None) -> list:
    """Four steps of momentum, clipped, each rank on its half of the batch; the weights, flat.

    level None: one process on the whole batch.
    """
    model = make_model()
    optimizer = make_optimizer(model)
    batch = np.random.RandomState(0).randn(4, 8, 6).astype("float32")
    if level is not None:
        start(bridged=True)
        if numel is not None:
            collectives.set_stage3_segment_size(numel)
        model, optimizer = shard(model, level)
        batch = np.split(batch, dist.get_world_size(), axis=1)[dist.get_rank()]
    for x in batch:
        (model(paddle.to_tensor(x)) ** 2).mean().backward()
        optimizer.step()
        optimizer.clear_grad()
    if level == "p_g_os":
        model.get_all_parameters(convert2cpu=True)
    return [p.flatten().tolist() for p in model.parameters()]
