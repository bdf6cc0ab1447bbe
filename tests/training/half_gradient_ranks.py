"""Rank functions of test_half_gradients.py."""

import numpy as np

from launch.checkpoint.local_tensors import innermost
from launch.train import train_method
from launch.training import run
from tests.checkpoint import half_ranks


def train(argv: list[str], factor: float) -> dict:
    """Train with all gradients multiplied by `factor`: 1 where they are summed in float32, which bears no hook.

    clipped: of each step, by how much the clip has multiplied what this rank has; dtypes: of the gradients that it got.
    """
    seen = {"clipped": [], "dtypes": []}
    upstream = run.build_trainer

    def build_trainer(*args):
        trainer = upstream(*args)
        for parameter in trainer.model.parameters() if factor != 1 else []:
            parameter.register_hook(lambda gradient: gradient * factor)
        create_optimizer = trainer.create_optimizer

        def create_and_watch(*args):
            optimizer = create_optimizer(*args)
            apply = optimizer._apply_optimize

            def apply_watched(*args, **kwargs):
                watch_clip(innermost(optimizer), seen)
                return apply(*args, **kwargs)

            optimizer._apply_optimize = apply_watched
            return optimizer

        trainer.create_optimizer = create_and_watch
        return trainer

    run.build_trainer = build_trainer
    if "--fp16" in argv:
        half_ranks.install()
    train_method("run_pretrain", argv)
    return seen


def watch_clip(optimizer, seen: dict) -> None:
    """Once: wrap what sharding and fleet have left as the optimizer's clip."""
    clip = optimizer._grad_clip
    if getattr(clip, "watched", False):
        return

    def watched(pairs):
        before = size(pairs)
        pairs = clip(pairs)
        seen["clipped"].append(size(pairs) / before)
        seen["dtypes"] = sorted({str(gradient.dtype).removeprefix("paddle.") for _, gradient in pairs})
        return pairs

    watched.watched = True
    optimizer._grad_clip = watched


def size(pairs) -> float:
    """In float64."""
    return sum(float(np.abs(one.astype("float32").numpy().astype("float64")).sum()) for _, one in pairs)
